"""What goes in and out of the routes of re-judgings."""

from dataclasses import asdict
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from lethe.competition.timestamp import Timestamp
from lethe.competition.visibility import Visibility
from server.api.admin.schemas import Why
from server.models.rejudging import Rejudging
from server.rejudging.progress import RejudgingProgress
from server.rejudging.service import Changed, Preview


class NewMetric(BaseModel):
    """How outputs become a score, where it is to differ; what is not named stays."""

    model_config = ConfigDict(extra="forbid")

    attacks: str | None = Field(default=None, description="reference, exact or disentangled", examples=["exact"])
    delta: float | None = Field(default=None, gt=0, lt=1)
    epsilon_cap: float | None = Field(default=None, gt=0)


class NewRejudging(BaseModel):
    """Which submissions are scored again, on which split, what changed, and why."""

    model_config = ConfigDict(extra="forbid")

    split: Visibility = Visibility.PUBLIC
    changed: Changed = Field(
        description="what changed: the scorer (stored outputs are scored again), the limits, a repaired split, the host"
    )
    reason: Why
    metric: NewMetric | None = Field(
        default=None, description="try another metric on all submissions; applied, it is the competition's"
    )
    submissions: list[str] | None = Field(
        default=None, max_length=10_000, description="ids; their first characters are enough"
    )
    team_id: str | None = None
    error_class: str | None = None
    received_from: Timestamp | None = None
    received_before: Timestamp | None = None


class RejudgingOut(BaseModel):
    """A re-judging."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    visibility: str
    state: str = Field(description="running, applied or discarded")
    changed: str
    reason: str
    chosen: dict[str, Any]
    metric: dict[str, Any] | None = Field(description="the metric that it tries; null: the competition's")
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
    def with_progress(cls, row: Rejudging, *, author: str, progress: RejudgingProgress) -> "RejudgingStatus":
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
    new_state: str = Field(description="preliminary until it is scored, failed or cancelled")
    new_score: float | None


class TeamChangeOut(BaseModel):
    """What applying does to one team."""

    model_config = ConfigDict(from_attributes=True)

    team: str
    old_rank: int | None
    old_score: float | None
    new_rank: int | None
    new_score: float | None
    final: bool = Field(description="false while an evaluation of the re-judging is waited for")


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
            teams=[TeamChangeOut(**asdict(change), final=preview.is_complete) for change in preview.teams],
        )
