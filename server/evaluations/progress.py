"""How far an evaluation is, as participants and organisers may know it."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class AttemptEntry:
    """One line of the timeline: a worker's try at some runs."""

    first_run: int
    last_run: int
    kind: str  # smoke, runs
    attempt: int
    outcome: str  # running, done, failed, lost, given-back, cancelled
    started_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True)
class Progress:
    """Runs done of an evaluation, and how long the rest may take."""

    runs_done: int
    runs_total: int
    elapsed_s: float | None
    remaining_s: float | None  # an estimate; None while nothing is known
    attempts: tuple[AttemptEntry, ...]
