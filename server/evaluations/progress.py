"""How far an evaluation is. Organisers see it as it is; `server.disclosure.gate` says what its team sees."""

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
class EvaluationProgress:
    """Runs done of an evaluation, and how long the rest may take."""

    runs_done: int
    runs_total: int
    elapsed_s: float | None
    remaining_s: float | None  # an estimate; None while nothing is known
    attempts: tuple[AttemptEntry, ...]


def remaining_s(elapsed_s: float | None, done: int, total: int) -> float | None:
    """Return how long the runs that are left may take, if they go on as those before."""
    return elapsed_s / done * (total - done) if elapsed_s and done else None
