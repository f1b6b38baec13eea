"""What goes in and out of organisers' and administrators' routes."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from lethe.competition.timestamp import Timestamp
from lethe.competition.visibility import Visibility
from server.admin.competition_edits import LimitsChange
from server.admin.listed_account import ListedAccount
from server.leaderboard.ranking import Row
from server.models.account import Role
from server.models.audit import AuditEvent
from server.models.competition import Team
from server.models.rejudging import Announcement

Why = Annotated[str, Field(min_length=1, max_length=1000, examples=["It sends the same file from five accounts"])]


class _In(BaseModel):
    model_config = ConfigDict(extra="forbid")


class WhyBody(_In):
    """Why."""

    reason: Why


class SubmissionAct(_In):
    """What to do to a submission, and why."""

    act: Literal["cancel", "run-again", "disqualify", "restore"]
    split: Visibility = Field(default=Visibility.PUBLIC, description="where to run it again")
    reason: Why


class TeamAct(_In):
    """What to do to a team, and why."""

    act: Literal["disqualify", "restore", "rename"]
    reason: Why
    name: str = Field(default="", max_length=200, description="rename: the new name")


class AccountAct(_In):
    """What to do to an account, and why."""

    act: Literal["ban", "unban", "make-participant", "make-organiser", "make-administrator"]
    reason: Why


class NewEnd(_In):
    """Another end, with its time zone."""

    closes_at: Timestamp
    reason: Why


class NewLimits(_In):
    """Limits to change; those not named stay."""

    limits: dict[str, Any] = Field(examples=[{"submissions_per_day": 3}])
    reason: Why
    preview: bool = Field(default=False, description="only say whom it would affect")


class LimitsChangeOut(BaseModel):
    """What other limits mean."""

    applied: bool
    changed: dict[str, list[Any]] = Field(description="old and new value", examples=[{"submissions_per_day": [5, 3]}])
    over_daily_quota: dict[str, int] = Field(description="teams that have sent more today than they then may")
    over_total_quota: dict[str, int]
    too_large: dict[str, int] = Field(description="teams with more people than then allowed")
    too_many_finals: dict[str, int]
    unfinished: int = Field(description="submissions whose remaining runs get the new limits")

    @classmethod
    def of(cls, change: LimitsChange, *, applied: bool) -> "LimitsChangeOut":
        return cls(
            applied=applied,
            changed={name: list(values) for name, values in change.changed.items()},
            over_daily_quota=change.over_daily_quota,
            over_total_quota=change.over_total_quota,
            too_large=change.too_large,
            too_many_finals=change.too_many_finals,
            unfinished=change.unfinished,
        )


class NewTexts(_In):
    """Texts to change; those not named stay."""

    title: str | None = None
    summary: str | None = None
    description: str | None = Field(default=None, description="Markdown")
    reason: Why


class NewAnnouncement(_In):
    """Something that everybody should know."""

    title: str = Field(min_length=1, max_length=200)
    text: str = Field(min_length=1, max_length=20_000, description="Markdown")


class AnnouncementOut(BaseModel):
    """An announcement."""

    id: str
    title: str
    text: str
    author: str
    created_at: datetime

    @classmethod
    def of(cls, row: Announcement, author: str) -> "AnnouncementOut":
        return cls(id=row.id, title=row.title, text=row.text, author=author, created_at=row.created_at)


class AuditEventOut(BaseModel):
    """One line of the audit log."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    at: datetime
    actor: str
    action: str = Field(examples=["submission.disqualified"])
    subject: str
    reason: str
    data: dict[str, Any]

    @classmethod
    def of(cls, event: AuditEvent) -> "AuditEventOut":
        return cls.model_validate(event)


class ListedTeam(BaseModel):
    """A team as organisers see it."""

    id: str
    name: str
    leader: str
    members: int
    rank: int | None = Field(description="on the public board; null without a score")
    entries: int
    is_baseline: bool
    disqualified_at: datetime | None

    @classmethod
    def of(cls, team: Team, leader: str, members: int, row: Row | None) -> "ListedTeam":
        return cls(
            id=team.id,
            name=team.name,
            leader=leader,
            members=members,
            rank=row.rank if row else None,
            entries=row.entry.entries if row else 0,
            is_baseline=team.is_baseline,
            disqualified_at=team.disqualified_at,
        )


class PeopleOut(BaseModel):
    """Who runs a competition and who takes part."""

    organisers: list[str]
    teams: list[ListedTeam] = Field(description="by name; a hundred a page")
    has_more: bool = Field(description="whether there is another page of teams")


class ListedAccountOut(BaseModel):
    """An account as administrators see it."""

    name: str
    email: str | None
    role: Role
    organises: int = Field(description="competitions")
    teams: int
    created_at: datetime
    disabled_at: datetime | None

    @classmethod
    def of(cls, row: ListedAccount) -> "ListedAccountOut":
        account = row.account
        return cls(
            name=account.name,
            email=account.email,
            role=Role(account.role),
            organises=row.organises,
            teams=row.teams,
            created_at=account.created_at,
            disabled_at=account.disabled_at,
        )
