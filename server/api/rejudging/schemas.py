"""What goes in and out of the routes of re-judgings."""

from datetime import datetime
from typing import Any

from pydantic import Field

from lethe.competition.section import Timestamp
from lethe.competition.visibility import Visibility
from server.api.admin.schemas import Why
from server.api.schema import In, Out
from server.models.rejudging import Rejudging
from server.rejudging.progress import RejudgingProgress
from server.rejudging.service import Changed, Preview


class NewScoring(In):
    """How outputs become a score, where it is to differ; what is not named stays."""

    attacks: str | None = Field(
        default=None, description="crossfit, reference, exact or disentangled", examples=["crossfit"]
    )
    delta: float | None = Field(default=None, gt=0, lt=1)
    epsilon_cap: float | None = Field(default=None, gt=0)


class NewRejudging(In):
    """Which submissions are scored again, on which split, what changed, and why."""

    split: Visibility = Visibility.PUBLIC
    changed: Changed = Field(
        description="what changed: the scorer (stored outputs are scored again), the limits, a repaired split, the host"
    )
    reason: Why
    scoring: NewScoring | None = Field(
        default=None, description="try another scoring on all submissions; applied, it is the competition's"
    )
    submissions: list[str] | None = Field(
        default=None, max_length=10_000, description="ids; their first characters are enough"
    )
    team_id: str | None = None
    error_class: str | None = None
    received_from: Timestamp | None = None
    received_before: Timestamp | None = None


class RejudgingOut(Out):
    """A re-judging."""

    id: str
    visibility: str
    state: str = Field(description="running, applied or discarded")
    changed: str
    reason: str
    chosen: dict[str, Any]
    scoring: dict[str, Any] | None = Field(description="the scoring that it tries; null: the competition's")
    created_at: datetime
    ended_at: datetime | None


class RejudgingStatus(RejudgingOut):
    """A re-judging and how far it is."""

    author: str
    complete: bool
    evaluations: dict[str, int] = Field(description="evaluations in each state", examples=[{"scored": 3, "queued": 1}])
    runs_done: int
    runs: int

    @classmethod
    def with_progress(cls, row: Rejudging, *, author: str, progress: RejudgingProgress) -> "RejudgingStatus":
        return cls.read(
            row,
            author=author,
            complete=progress.is_complete,
            evaluations=progress.states,
            runs_done=progress.runs_done,
            runs=progress.runs,
        )


class OutcomeOut(Out):
    """Old and new of one submission."""

    submission_id: str
    old_state: str
    old_score: float | None
    new_state: str = Field(description="preliminary until it is scored, failed or cancelled")
    new_score: float | None


class TeamChangeOut(Out):
    """What applying does to one team."""

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
        return cls.read(
            preview.rejudging,
            complete=preview.is_complete,
            submissions=preview.outcomes,
            teams=[TeamChangeOut.read(change, final=preview.is_complete) for change in preview.teams],
        )
