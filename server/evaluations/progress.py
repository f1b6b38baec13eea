"""How far an evaluation is, as participants and organisers may know it.

Runs on hidden data could tell their team something by how long they take. So a team sees the runs done in a few steps,
and what happened to a shard of them only when its minute is over; organisers see everything as it is.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from server.evaluations.step_clock import elapsed_at_step

STEPS = 32  # in which a team sees the runs being done, at most
MINUTE = timedelta(minutes=1)


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


def shown_to_team(progress: EvaluationProgress, *, is_over: bool, at: datetime, key: str = "") -> EvaluationProgress:
    """Return what the team sees of it at a moment. is_over: nothing of it runs any more, so nothing is held back.

    key: names the evaluation, so that its time left is counted down between two steps.
    The smoke run is on the public sample and stays as it is.
    """
    total = progress.runs_total
    done = _in_steps(progress.runs_done, total)
    holds_back = not is_over and done < total
    entries = [_of_minute(entry, at=at, holds_back=holds_back) for entry in progress.attempts]
    shown = [entry for entry in entries if entry is not None]
    return replace(
        progress,
        runs_done=done,
        elapsed_s=None if progress.elapsed_s is None else float(int(progress.elapsed_s)),
        remaining_s=None if progress.remaining_s is None else _counted_down(progress.elapsed_s, done, total, key=key),
        attempts=tuple(sorted(shown, key=lambda entry: (to_minute(entry.started_at), entry.first_run, entry.attempt))),
    )


def remaining_s(elapsed_s: float | None, done: int, total: int) -> float | None:
    """Return how long the runs that are left may take, if they go on as those before."""
    return elapsed_s / done * (total - done) if elapsed_s and done else None


def _counted_down(elapsed_s: float | None, done: int, total: int, *, key: str) -> float | None:
    if not elapsed_s or not done:
        return None
    at_step_s = elapsed_at_step(key, done=done, elapsed_s=elapsed_s) if key else elapsed_s
    left_s = remaining_s(at_step_s, done, total) or 0.0
    return max(0.0, left_s - (elapsed_s - at_step_s))


def to_minute(moment: datetime) -> datetime:
    """Return when the minute of a moment began."""
    return moment.replace(second=0, microsecond=0)


def _in_steps(done: int, total: int) -> int:
    step = -(-total // STEPS)
    return done if done >= total else done // step * step


def _of_minute(entry: AttemptEntry, *, at: datetime, holds_back: bool) -> AttemptEntry | None:
    """Return the entry with its times to the minute; None, or running still, where its minute is not over yet."""
    if entry.kind == "smoke":
        return entry
    if holds_back and at < to_minute(entry.started_at) + MINUTE:
        return None
    if entry.ended_at is None or (holds_back and at < to_minute(entry.ended_at) + MINUTE):
        return replace(entry, started_at=to_minute(entry.started_at), ended_at=None, outcome="running")
    return replace(entry, started_at=to_minute(entry.started_at), ended_at=to_minute(entry.ended_at))
