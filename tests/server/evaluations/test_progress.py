"""What a team sees of its runs on hidden data: few steps, and times to the minute once the minute is over."""

from datetime import UTC, datetime, timedelta

import pytest

from server.evaluations.progress import STEPS, AttemptEntry, EvaluationProgress, shown_to_team

AT = datetime(2026, 3, 1, 12, 30, 20, tzinfo=UTC)


def seen(
    done: int, total: int, *attempts: AttemptEntry, is_over: bool = False, at: datetime = AT
) -> EvaluationProgress:
    exact = EvaluationProgress(runs_done=done, runs_total=total, elapsed_s=64.7, remaining_s=1.0, attempts=attempts)
    return shown_to_team(exact, is_over=is_over, at=at)


def runs(*, first: int = 0, began_s: float, ended_s: float | None = None, kind: str = "runs") -> AttemptEntry:
    """Return an attempt that began, and ended, so many seconds before AT."""
    ended = None if ended_s is None else AT - timedelta(seconds=ended_s)
    outcome = "running" if ended is None else "done"
    return AttemptEntry(first, first + 3, kind, 1, outcome, AT - timedelta(seconds=began_s), ended)


@pytest.mark.parametrize("total", [1, 4, 31, 32, 33, 100, 512, 1000, 4096])
def test_runs_done_move_in_few_steps_and_never_ahead(total: int) -> None:
    shown = [seen(done, total).runs_done for done in range(total + 1)]
    assert shown == sorted(shown)
    assert all(value <= done for done, value in enumerate(shown))
    assert (shown[0], shown[-1]) == (0, total)
    assert len(set(shown)) - 1 <= STEPS
    if total <= STEPS:
        assert shown == list(range(total + 1))


def test_estimated_end_follows_from_the_steps_that_are_seen() -> None:
    assert seen(16, 512).remaining_s == seen(31, 512).remaining_s == pytest.approx(64.7 / 16 * 496)
    assert seen(15, 512).remaining_s is None
    assert seen(31, 512).elapsed_s == 64


def test_attempts_are_shown_to_the_minute_after_it_is_over() -> None:
    old, ending, begun = runs(began_s=200, ended_s=100), runs(first=4, began_s=90, ended_s=15), runs(first=8, began_s=5)
    shown = seen(0, 512, begun, ending, old).attempts
    assert [entry.outcome for entry in shown] == ["done", "running"]  # the one of this minute is not there yet
    assert shown[0].ended_at == datetime(2026, 3, 1, 12, 28, tzinfo=UTC)
    assert shown[1].started_at == datetime(2026, 3, 1, 12, 28, tzinfo=UTC)
    later = seen(0, 512, begun, ending, old, at=AT + timedelta(seconds=40)).attempts
    assert [entry.outcome for entry in later] == ["done", "done", "running"]
    assert all(entry.started_at.second == 0 for entry in later)


@pytest.mark.parametrize("first", [(0, 4, 8), (8, 4, 0), (4, 8, 0)])
def test_order_within_a_minute_is_that_of_the_runs(first: tuple[int, ...]) -> None:
    attempts = [runs(first=run, began_s=110 - place, ended_s=90 - place) for place, run in enumerate(first)]
    assert [entry.first_run for entry in seen(0, 512, *attempts).attempts] == [0, 4, 8]


@pytest.mark.parametrize(("done", "is_over"), [(512, False), (100, True)])
def test_nothing_is_held_back_once_no_run_is_left(done: int, is_over: bool) -> None:
    (entry,) = seen(done, 512, runs(began_s=10, ended_s=1), is_over=is_over).attempts
    assert (entry.outcome, entry.ended_at) == ("done", datetime(2026, 3, 1, 12, 30, tzinfo=UTC))


def test_smoke_run_is_told_as_it_is() -> None:
    smoke = runs(began_s=3, ended_s=1, kind="smoke")
    assert seen(0, 512, smoke).attempts == (smoke,)


def test_time_left_is_counted_down_between_two_steps() -> None:
    def left(done: int, elapsed_s: float) -> float | None:
        exact = EvaluationProgress(runs_done=done, runs_total=512, elapsed_s=elapsed_s, remaining_s=1.0, attempts=())
        return shown_to_team(exact, is_over=False, at=AT, key="counted down").remaining_s

    assert left(16, 32.0) == pytest.approx(2 * 496)
    assert left(20, 41.0) == pytest.approx(2 * 496 - 9), "the clock goes on, the estimate stays"
    assert left(31, 64.0) == pytest.approx(2 * 496 - 32)
    assert left(32, 64.0) == pytest.approx(2 * 480), "nothing jumps where runs take as long as before"
    assert left(32, 1e6) == 0.0
    assert left(16, 20.0) == pytest.approx(20 / 16 * 496), "run again from the start"
