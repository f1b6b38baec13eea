"""What a team sees of its runs on hidden data: four steps, and times to the minute once the minute is over."""

from datetime import UTC, datetime, timedelta

import pytest

from server.disclosure.shown_progress import STEPS, shown_progress
from server.evaluations.evaluations import AttemptEntry, EvaluationProgress

AT = datetime(2026, 3, 1, 12, 30, 20, tzinfo=UTC)
TOTAL, SHARD = 512, 32


def seen(
    done: int, *attempts: AttemptEntry, is_over: bool = False, at: datetime = AT, elapsed_s: float = 64.7
) -> EvaluationProgress:
    exact = EvaluationProgress(
        runs_done=done, runs_total=TOTAL, elapsed_s=elapsed_s, remaining_s=1.0, attempts=attempts
    )
    return shown_progress(exact, is_over=is_over, at=at)


def runs(
    *, first: int = 0, began_s: float, ended_s: float | None = None, kind: str = "runs", outcome: str = "done"
) -> AttemptEntry:
    """Return an attempt at a shard that began, and ended, so many seconds before AT."""
    ended = None if ended_s is None else AT - timedelta(seconds=ended_s)
    outcome = "running" if ended is None else outcome
    return AttemptEntry(first, first + SHARD - 1, kind, 1, outcome, AT - timedelta(seconds=began_s), ended)


def shards(number: int, *, ended_s: float) -> list[AttemptEntry]:
    """Return so many shards that are done."""
    return [runs(first=SHARD * place, began_s=ended_s + 60, ended_s=ended_s) for place in range(number)]


@pytest.mark.parametrize("number", range(16))
def test_runs_done_move_in_quarters_and_never_ahead(number: int) -> None:
    shown = seen(SHARD * number + 3, *shards(number, ended_s=90)).runs_done
    assert shown == number // 4 * (TOTAL // STEPS)


def test_runs_done_within_a_shard_or_a_minute_change_nothing() -> None:
    ended, ending = shards(8, ended_s=90), runs(first=8 * SHARD, began_s=80, ended_s=15)
    known = seen(8 * SHARD, *ended)
    for done in (8 * SHARD + 1, 15 * SHARD):
        assert seen(done, *ended) == known
    full = [*shards(11, ended_s=90), replace_end(11, 15)]
    assert seen(12 * SHARD, *full).runs_done == 256, "the last quarter's minute is not over"
    assert seen(12 * SHARD, *full, at=AT + timedelta(seconds=40)).runs_done == 384
    assert seen(9 * SHARD, *ended, ending).runs_done == 256


def replace_end(place: int, ended_s: float) -> AttemptEntry:
    return runs(first=SHARD * place, began_s=80, ended_s=ended_s)


def test_time_left_follows_from_the_quarter_and_is_counted_down() -> None:
    def left(after_s: float) -> float | None:
        return seen(
            300, *shards(8, ended_s=80), at=AT + timedelta(seconds=after_s), elapsed_s=320 + after_s
        ).remaining_s

    assert left(0) == pytest.approx(280.0)  # at 12:30:00 the half was known to be done, after 300 s
    assert left(30) == pytest.approx(250.0)
    later = seen(400, *shards(8, ended_s=200), *(replace_end(place, 80) for place in (8, 9)), elapsed_s=320).remaining_s
    assert later == seen(300, *shards(8, ended_s=200), elapsed_s=320).remaining_s, (
        "shards within a quarter change nothing"
    )
    assert left(1e6) == 0.0
    assert seen(40, runs(began_s=200)).remaining_s is None
    assert seen(40, runs(began_s=200)).elapsed_s == 64


def test_runs_are_one_attempt_to_the_minute() -> None:
    attempts = [runs(began_s=200, ended_s=100), runs(first=32, began_s=90, ended_s=15), runs(first=64, began_s=5)]
    (shown,) = seen(40, *attempts).attempts
    assert (shown.first_run, shown.last_run, shown.outcome, shown.ended_at) == (0, 511, "running", None)
    assert shown.started_at == datetime(2026, 3, 1, 12, 27, tzinfo=UTC)
    (over,) = seen(40, *attempts, is_over=True).attempts
    assert over.ended_at == datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
    assert seen(0, runs(began_s=5)).attempts == (), "it began in this minute"


def test_lost_runs_are_told_after_their_minute() -> None:
    lost, late = (runs(began_s=200, ended_s=ended_s, outcome="lost") for ended_s in (100, 15))
    assert [entry.outcome for entry in seen(0, lost, late).attempts] == ["lost", "running"]
    assert seen(0, lost).attempts[0].ended_at == datetime(2026, 3, 1, 12, 28, tzinfo=UTC)


def test_outcome_of_all_runs_is_that_of_the_one_that_ended_them() -> None:
    failed = [*shards(2, ended_s=90), runs(first=64, began_s=80, ended_s=30, outcome="failed")]
    failed += [runs(first=96, began_s=80, ended_s=29, outcome="cancelled")]
    assert seen(70, *failed, is_over=True).attempts[-1].outcome == "failed"


def test_nothing_is_held_back_once_no_run_is_left() -> None:
    everything = [*shards(15, ended_s=90), runs(first=480, began_s=20, ended_s=1)]
    for is_over in (True, False):
        shown = seen(TOTAL, *everything, is_over=is_over)
        assert (shown.runs_done, shown.remaining_s, shown.elapsed_s) == (TOTAL, None, 120.0)


def test_smoke_run_is_told_as_it_is() -> None:
    smoke = runs(began_s=3, ended_s=1, kind="smoke")
    assert seen(0, smoke).attempts == (smoke,)
