"""What goes in and out of the routes of teams."""

from datetime import datetime

from pydantic import BaseModel, Field

from server.api.schema import In, Out
from server.models.account import Account
from server.models.competition import Team
from server.models.invitation import Invitation


class NewTeam(In):
    """A new team."""

    name: str = Field(description="1 to 60 visible characters, unique in the competition", examples=["The Forgetful"])


class TeamOut(Out):
    """A team, as its members see it."""

    id: str = Field(examples=["2f6d0c2a9b3e4f58"])
    name: str = Field(examples=["The Forgetful"])
    leader: str = Field(examples=["ada"])
    members: list[str] = Field(examples=[["ada", "grace"]])
    created_at: datetime

    @classmethod
    def of(cls, team: Team, members: list[Account]) -> "TeamOut":
        leader = next((account.name for account in members if account.id == team.leader_id), "")
        return cls.read(team, leader=leader, members=[account.name for account in members])


class TeamName(In):
    """Another name."""

    name: str = Field(examples=["The Forgetful"])


class Invitee(In):
    """Whom to invite; nobody by name: the answer holds a link for one person."""

    name: str | None = Field(default=None, max_length=200, examples=["grace"])


class InvitationOut(BaseModel):
    """An invitation."""

    id: str = Field(examples=["0a1b2c3d4e5f6071"])
    team: str = Field(examples=["The Forgetful"])
    name: str | None = Field(description="whom it is for; null: whoever holds the link")
    expires_at: datetime
    token: str | None = Field(default=None, description="of the link; shown this once")

    @classmethod
    def of(cls, row: Invitation, *, team: str, name: str | None, token: str | None = None) -> "InvitationOut":
        return cls(id=row.id, team=team, name=name, expires_at=row.expires_at, token=token)


class InvitationToken(In):
    """The token of a link."""

    token: str = Field(max_length=200)


class NewLeader(In):
    """Who leads from now on."""

    name: str = Field(max_length=200, examples=["grace"])


class MergeInto(In):
    """The team to become part of."""

    team: str = Field(max_length=200, examples=["The Forgetful"])


class MergeOut(BaseModel):
    """A request to merge."""

    id: str
    team: str = Field(description="the team that asks")
    into: str = Field(description="the team that stays")
    created_at: datetime
