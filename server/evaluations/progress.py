"""How far an evaluation is. Organisers see it as it is; `server.disclosure.gate` says what its team sees."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from pydantic import Field


@dataclass(frozen=True)
class AttemptEntry:
    """One line of the timeline: a worker's attempt at some runs."""

    first_run: int
    last_run: int
    kind: Annotated[str, Field(description="smoke or runs", examples=["runs"])]
    attempt: int
    outcome: Annotated[str, Field(description="running, done, failed, lost, given-back, cancelled", examples=["done"])]
    started_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True)
class EvaluationProgress:
    """Runs done of all, and how long the rest may take."""

    runs_done: Annotated[int, Field(examples=[137])]
    runs_total: Annotated[int, Field(examples=[512])]
    elapsed_s: float | None
    remaining_s: Annotated[float | None, Field(description="an estimate; null while nothing is known")]
    attempts: tuple[AttemptEntry, ...]


def remaining_s(elapsed_s: float | None, done: int, total: int) -> float | None:
    """Return how long the runs that are left may take, if they go on as those before."""
    return elapsed_s / done * (total - done) if elapsed_s and done else None
