"""/api/v1/competitions/{slug}: teams, and how people come to them."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, status
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from server.api.auth_dependencies import CurrentAccount, VisibleCompetition
from server.api.schema import In, Out
from server.deps import SessionDep
from server.models.account import Account
from server.models.competition import Team
from server.models.participation import Invitation
from server.problem_details import problems
from server.teams import joining, teams


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


router = APIRouter(prefix="/competitions/{slug}", tags=["teams"], responses=problems(401, 404))
NO_CONTENT = status.HTTP_204_NO_CONTENT


def own_team(session: SessionDep, competition: VisibleCompetition, account: CurrentAccount) -> Team:
    """Return the caller's team. Raises NotFound."""
    return teams.own_team(session, competition, account)


OwnTeam = Annotated[Team, Depends(own_team)]


@router.get("/team")
def show_team(session: SessionDep, team: OwnTeam) -> TeamOut:
    """Show the team that you are in."""
    return _shown(session, team)


@router.post("/teams", status_code=status.HTTP_201_CREATED, responses=problems(409))
def create_team(
    body: NewTeam, session: SessionDep, competition: VisibleCompetition, account: CurrentAccount
) -> TeamOut:
    """Create a team and lead it. Alone needs no act: the first submission makes a team of one."""
    return _shown(session, teams.create(session, competition, account, name=body.name))


@router.patch("/team", responses=problems(403, 409))
def rename_team(
    body: TeamName, session: SessionDep, *, competition: VisibleCompetition, team: OwnTeam, account: CurrentAccount
) -> TeamOut:
    """Give your team another name, until the close. For its leader."""
    joining.check_leader(team, account)
    teams.rename_own(session, competition, team, name=body.name, actor=account)
    return _shown(session, team)


@router.post("/team/leave", status_code=NO_CONTENT, responses=problems(409))
def leave_team(session: SessionDep, competition: VisibleCompetition, account: CurrentAccount) -> None:
    """Leave your team. Not possible once the team has submitted."""
    joining.leave(session, competition, account)


@router.put("/team/leader", responses=problems(403))
def hand_over(body: NewLeader, session: SessionDep, team: OwnTeam, account: CurrentAccount) -> TeamOut:
    """Make another member the leader. For the leader."""
    return _shown(session, joining.hand_over(session, team, name=body.name, actor=account))


@router.post("/team/invitations", status_code=status.HTTP_201_CREATED, responses=problems(403, 409))
def invite(body: Invitee, session: SessionDep, team: OwnTeam, account: CurrentAccount) -> InvitationOut:
    """Invite a person by name, or make a link that brings in one person within 7 days. For the leader."""
    issued = joining.invite(session, team, actor=account, name=body.name)
    return InvitationOut.of(issued.row, team=team.name, name=body.name, token=issued.token)


@router.get("/team/invitations", responses=problems(403))
def list_invitations(session: SessionDep, team: OwnTeam, account: CurrentAccount) -> list[InvitationOut]:
    """List your team's invitations that can still be accepted. For the leader."""
    rows = joining.open_invitations(session, team, actor=account)
    return [InvitationOut.of(row, team=team.name, name=row.account.name if row.account else None) for row in rows]


@router.delete("/team/invitations/{invitation_id}", status_code=NO_CONTENT, responses=problems(403))
def revoke_invitation(invitation_id: str, session: SessionDep, team: OwnTeam, account: CurrentAccount) -> None:
    """End an invitation. For the leader."""
    joining.revoke(session, team, invitation_id, actor=account)


@router.post("/team/join", responses=problems(409))
def join_by_link(
    body: InvitationToken, session: SessionDep, competition: VisibleCompetition, account: CurrentAccount
) -> TeamOut:
    """Join the team that a link invites to."""
    return _shown(session, joining.accept_link(session, competition, body.token, account=account))


@router.get("/invitations")
def list_my_invitations(
    session: SessionDep, competition: VisibleCompetition, account: CurrentAccount
) -> list[InvitationOut]:
    """List the invitations to you by name."""
    rows = joining.invitations_to(session, competition, account)
    return [InvitationOut.of(row, team=row.team.name, name=account.name) for row in rows]


@router.post("/invitations/{invitation_id}/accept", responses=problems(409))
def accept_invitation(
    invitation_id: str, session: SessionDep, competition: VisibleCompetition, account: CurrentAccount
) -> TeamOut:
    """Join the team that invited you by name."""
    return _shown(session, joining.accept(session, competition, invitation_id, account=account))


@router.post("/invitations/{invitation_id}/decline", status_code=NO_CONTENT)
def decline_invitation(
    invitation_id: str, session: SessionDep, competition: VisibleCompetition, account: CurrentAccount
) -> None:
    """Turn an invitation down."""
    joining.decline(session, competition, invitation_id, account=account)


@router.get("/team/merges")
def list_merges(session: SessionDep, team: OwnTeam) -> list[MergeOut]:
    """List the requests to merge, from and to your team."""
    return [
        MergeOut(id=row.id, team=row.team.name, into=row.into.name, created_at=row.created_at)
        for row in joining.requests(session, team)
    ]


@router.post("/team/merges", status_code=status.HTTP_201_CREATED, responses=problems(403, 409))
def ask_to_merge(
    body: MergeInto, session: SessionDep, competition: VisibleCompetition, account: CurrentAccount
) -> MergeOut:
    """Ask that your team becomes part of another: people and submissions together must keep the limits of one team."""
    row = joining.ask(session, competition, into=body.team, actor=account)
    mine = teams.own_team(session, competition, account)
    return MergeOut(id=row.id, team=mine.name, into=body.team, created_at=row.created_at)


@router.post("/team/merges/{request_id}/agree", responses=problems(403, 409))
def agree_to_merge(
    request_id: str, session: SessionDep, competition: VisibleCompetition, account: CurrentAccount
) -> TeamOut:
    """Take the team that asked into yours. For the leader."""
    return _shown(session, joining.agree(session, competition, request_id, actor=account))


@router.delete("/team/merges/{request_id}", status_code=NO_CONTENT, responses=problems(403))
def refuse_to_merge(
    request_id: str, session: SessionDep, competition: VisibleCompetition, account: CurrentAccount
) -> None:
    """Turn a request down, or take your own back."""
    joining.refuse(session, competition, request_id, actor=account)


def _shown(session: Session, team: Team) -> TeamOut:
    return TeamOut.of(team, teams.members(session, team))
