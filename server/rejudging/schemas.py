"""What goes in and out of the routes of re-judgings."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from lethe.competition.moment import Moment
from lethe.competition.visibility import Visibility
from server.admin.schemas import Why
from server.models.rejudging import Rejudging
from server.rejudging.progress import Progress
from server.rejudging.service import Changed, Preview


class NewRejudging(BaseModel):
    """Which submissions are scored again, on which split, what changed, and why."""

    model_config = ConfigDict(extra="forbid")

    split: Visibility = Visibility.PUBLIC
    changed: Changed = Field(description="what changed: the scorer, the limits, a repaired split, the host")
    reason: Why
    submissions: list[str] | None = Field(default=None, max_length=10_000)
    team_id: str | None = None
    error_class: str | None = None
    received_from: Moment | None = None
    received_before: Moment | None = None


class RejudgingOut(BaseModel):
    """A re-judging."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    visibility: str
    state: str = Field(description="running, applied or discarded")
    changed: str
    reason: str
    chosen: dict[str, Any]
    created_at: datetime
    ended_at: datetime | None

    @classmethod
    def of(cls, row: Rejudging) -> "RejudgingOut":
        return cls.model_validate(row)


class RejudgingStatus(RejudgingOut):
    """A re-judging and how far it is."""

    author: str
    complete: bool
    evaluations: dict[str, int] = Field(description="evaluations in each state", examples=[{"scored": 3, "queued": 1}])
    runs_done: int
    runs: int

    @classmethod
    def with_progress(cls, row: Rejudging, *, author: str, progress: Progress) -> "RejudgingStatus":
        return cls(
            **RejudgingOut.of(row).model_dump(),
            author=author,
            complete=progress.is_complete,
            evaluations=progress.states,
            runs_done=progress.runs_done,
            runs=progress.runs,
        )


class OutcomeOut(BaseModel):
    """Old and new of one submission."""

    model_config = ConfigDict(from_attributes=True)

    submission_id: str
    old_state: str
    old_score: float | None
    new_state: str
    new_score: float | None


class TeamChangeOut(BaseModel):
    """What applying does to one team."""

    model_config = ConfigDict(from_attributes=True)

    team: str
    old_rank: int | None
    old_score: float | None
    new_rank: int | None
    new_score: float | None


class RejudgingPreview(RejudgingOut):
    """A re-judging, how far it is, and what applying would change."""

    complete: bool
    submissions: list[OutcomeOut]
    teams: list[TeamChangeOut] = Field(description="only those whose rank or score would change")

    @classmethod
    def whole(cls, preview: Preview) -> "RejudgingPreview":
        return cls(
            **RejudgingOut.of(preview.rejudging).model_dump(),
            complete=preview.is_complete,
            submissions=[OutcomeOut.model_validate(outcome) for outcome in preview.outcomes],
            teams=[TeamChangeOut.model_validate(change) for change in preview.teams],
        )
