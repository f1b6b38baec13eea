"""What a team sees of runs that go on, so that how long they take on hidden data tells little: steps and minutes."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from math import ceil, log2

from server.evaluations.evaluations import AttemptEntry, EvaluationProgress

STEPS = 4  # in which a team sees the runs being done
MINUTE = timedelta(minutes=1)


def to_minute(moment: datetime) -> datetime:
    """Return when the minute of a moment began."""
    return moment.replace(second=0, microsecond=0)


def shown_progress(progress: EvaluationProgress, *, is_over: bool, at: datetime) -> EvaluationProgress:
    """Return what a team sees of an evaluation's progress. is_over: nothing of it runs any more.

    Runs on hidden data could tell something by how long they take. So what is done moves in quarters, by shards that
    have ended, when the minute of their end is over. The smoke run is on the public sample and stays as it is.
    """
    total, goes_on = progress.runs_total, not is_over and progress.runs_done < progress.runs_total
    runs = [attempt for attempt in progress.attempts if attempt.kind != "smoke"]
    step = -(-total // STEPS)
    done, marked_at = progress.runs_done // step * step if progress.runs_done < total else total, at
    if goes_on:
        done, marked_at = _known_done(runs, step=step, at=at)
    elapsed_s = (
        None if progress.elapsed_s is None else float(int(progress.elapsed_s) if goes_on else _whole_minutes(progress))
    )
    left_s = None
    if goes_on and done and elapsed_s:
        since_mark_s = (at - marked_at).total_seconds()
        left_s = max(0.0, (elapsed_s - since_mark_s) / done * (total - done) - since_mark_s)
    smoke = tuple(attempt for attempt in progress.attempts if attempt.kind == "smoke")
    return replace(
        progress,
        runs_done=done,
        elapsed_s=elapsed_s,
        remaining_s=left_s,
        attempts=smoke + _attempts(runs, total, at=at, goes_on=goes_on),
    )


def bits_of_the_end(*, wall_time_s: float) -> float:
    """Return what the moment of the end can tell to somebody who looks each second."""
    return log2(wall_time_s)


def _known_done(runs: Sequence[AttemptEntry], *, step: int, at: datetime) -> tuple[int, datetime]:
    """Return how many runs a team knows to be done, a multiple of `step`, and since when."""
    known, done, since = 0, 0, at
    for ended, n_runs in sorted((_end(attempt), _n_runs(attempt)) for attempt in runs if attempt.outcome == "done"):
        known += n_runs
        if ended <= at and known // step * step > done:
            done, since = known // step * step, ended
    return done, since


def _attempts(runs: Sequence[AttemptEntry], total: int, *, at: datetime, goes_on: bool) -> tuple[AttemptEntry, ...]:
    """Return all runs as one attempt, and, to the minute, what the host lost or gave back."""
    begun = [attempt for attempt in runs if not goes_on or to_minute(attempt.started_at) + MINUTE <= at]
    if not begun:
        return ()
    interrupted = [
        replace(attempt, started_at=to_minute(attempt.started_at), ended_at=to_minute(attempt.ended_at))
        for attempt in begun
        if attempt.outcome in ("lost", "given-back") and attempt.ended_at and (not goes_on or _end(attempt) <= at)
    ]
    outcomes = {attempt.outcome for attempt in begun}
    ended_at = max((attempt.ended_at for attempt in begun if attempt.ended_at), default=None)
    outcome = next((name for name in ("failed", "cancelled") if name in outcomes), "done")
    everything = AttemptEntry(
        first_run=0,
        last_run=total - 1,
        kind="runs",
        attempt=max(attempt.attempt for attempt in begun),
        outcome="running" if goes_on or ended_at is None else outcome,
        started_at=to_minute(min(attempt.started_at for attempt in begun)),
        ended_at=None if goes_on or ended_at is None else to_minute(ended_at),
    )
    return (
        *sorted(interrupted, key=lambda attempt: (attempt.started_at, attempt.first_run, attempt.attempt)),
        everything,
    )


def _end(attempt: AttemptEntry) -> datetime:
    """Return when a team may know that an attempt has ended."""
    return to_minute(attempt.ended_at or attempt.started_at) + MINUTE


def _n_runs(attempt: AttemptEntry) -> int:
    return attempt.last_run - attempt.first_run + 1


def _whole_minutes(progress: EvaluationProgress) -> float:
    return ceil((progress.elapsed_s or 0.0) / MINUTE.total_seconds()) * MINUTE.total_seconds()
