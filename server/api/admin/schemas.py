"""What goes in and out of organisers' and administrators' routes."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from lethe.competition.section import Timestamp
from lethe.competition.visibility import Visibility
from server.api.schema import In, Out
from server.models.account import Role

Why = Annotated[str, Field(min_length=1, max_length=1000, examples=["It sends the same file from five accounts"])]


class WhyBody(In):
    """Why."""

    reason: Why


class SubmissionAct(In):
    """What to do to a submission, and why."""

    act: Literal["cancel", "run-again", "confirm", "disqualify", "restore"]
    split: Visibility = Field(default=Visibility.PUBLIC, description="where to run it again, or to confirm its score")
    reason: Why


class TeamAct(In):
    """What to do to a team, and why."""

    act: Literal["disqualify", "restore", "rename", "extend"]
    reason: Why
    name: str = Field(default="", max_length=200, description="rename: the new name")
    until: Timestamp | None = Field(default=None, description="extend: the team's own end; null: the same as all")


class AccountAct(In):
    """What to do to an account, and why."""

    act: Literal["ban", "unban", "make-participant", "make-organiser", "make-administrator"]
    reason: Why


class NewAnnouncement(In):
    """Something that everybody should know."""

    title: str = Field(min_length=1, max_length=200)
    text: str = Field(min_length=1, max_length=20_000, description="Markdown")


class AnnouncementOut(Out):
    """An announcement."""

    id: str
    title: str
    text: str
    author: str
    created_at: datetime


class SentAnnouncement(AnnouncementOut):
    """An announcement that was just published, and whom it reaches."""

    people: int = Field(description="who take part or organise", examples=[40])
    mails: int = Field(description="to those of them who want mail; 0 where this server sends none", examples=[31])


class AuditEventOut(Out):
    """One line of the audit log."""

    id: int
    at: datetime
    actor: str
    action: str = Field(examples=["submission.disqualified"])
    subject: str
    reason: str
    data: dict[str, Any]


class ListedTeam(Out):
    """A team as organisers see it."""

    id: str
    name: str
    leader: str
    members: int
    rank: int | None = Field(description="on the public board; null without a score, or with an unconfirmed one")
    entries: int
    is_baseline: bool
    disqualified_at: datetime | None


class PeopleOut(BaseModel):
    """Who runs a competition and who takes part."""

    organisers: list[str]
    teams: list[ListedTeam] = Field(description="by name; a hundred a page")
    has_more: bool = Field(description="whether there is another page of teams")


class ListedAccountOut(Out):
    """An account as administrators see it."""

    name: str
    email: str | None
    role: Role
    organises: int = Field(description="competitions")
    teams: int
    created_at: datetime
    disabled_at: datetime | None
