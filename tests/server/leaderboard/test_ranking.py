"""The rules of a board and of its ladder, on hand-made entries."""

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.leaderboard.ranking import Entry, RowKind, Try, climb, rank

START = datetime(2030, 1, 1, tzinfo=UTC)


def entry(
    team: str,
    score: float | None,
    *,
    minute: int = 0,
    kind: RowKind = RowKind.TEAM,
    interval: tuple[float, float] | None = None,
) -> Entry:
    low, high = interval or (None, None)
    received = START + timedelta(minutes=minute)
    return Entry(team, team, kind, score, received_at=received, interval_low=low, interval_high=high)


HELD = [(1, "first"), (None, "host"), (2, "b")]


def listed(entries: list[Entry], **options: object) -> list[tuple[int | None, str]]:
    return [(row.rank, row.entry.team) for row in rank(entries, oracle=None, **options)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (
            [entry("a", 0.1), entry("b", 0.3), entry("c", 0.2, minute=2), entry("d", 0.2, minute=1)],
            [(1, "b"), (2, "d"), (2, "c"), (4, "a")],  # of equal scores the earlier one is listed first
        ),
        ([entry("first", 0.3), entry("host", 0.2, kind=RowKind.BASELINE), entry("b", 0.1)], HELD),
        ([entry("first", 0.3), entry("host", 0.2, kind=RowKind.UNCONFIRMED), entry("b", 0.1)], HELD),
        ([entry("team", 0.2), entry("", 0.2, kind=RowKind.ORACLE)], [(None, ""), (1, "team")]),
        ([entry("cheat", 0.9, kind=RowKind.DISQUALIFIED), entry("honest", 0.1)], [(1, "honest"), (None, "cheat")]),
        ([entry(str(score), score) for score in (None, math.nan, math.inf, -math.inf, 0.0)], [(1, "0.0")]),
    ],
)
def test_entries_stand_in_their_order_with_their_rank(entries: list[Entry], expected: list[object]) -> None:
    assert listed(entries) == expected


@pytest.mark.parametrize(
    ("score", "oracle", "share"), [(0.05, 0.2, 0.25), (0.3, 0.2, 1.5), (0.0, 0.2, 0.0), (0.05, 0.0, None)]
)
def test_every_row_tells_its_share_of_the_oracle(score: float, oracle: float, share: float | None) -> None:
    assert rank([entry("a", score)], oracle=oracle)[0].share_of_oracle == (share and pytest.approx(share))


def test_tied_groups_are_numbered_down_the_board() -> None:
    entries = [
        entry("a", 0.30)._replace(tied_group=0),
        entry("b", 0.27)._replace(tied_group=0),
        entry("c", 0.24)._replace(tied_group=2),  # group 1 was a team that has left
        entry("d", 0.20),
    ]
    rows = rank(entries, oracle=None, show_ties=True)
    assert [(row.entry.team, row.tied_group) for row in rows] == [("a", 1), ("b", 1), ("c", 2), ("d", None)]
    assert {row.tied_group for row in rank(entries, oracle=None)} == {None}, "nobody asked for them"


SCORES = st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.3]), max_size=12)


@given(SCORES)
def test_rank_is_one_more_than_the_number_of_better_teams(scores: list[float]) -> None:
    rows = rank([entry(str(place), score) for place, score in enumerate(scores)], oracle=None)
    for row in rows:
        assert row.rank == 1 + sum(score > (row.entry.score or 0.0) for score in scores)


@given(SCORES, st.randoms(use_true_random=False))
def test_the_order_of_the_entries_does_not_matter(scores: list[float], shuffler: object) -> None:
    entries = [entry(str(place), score, minute=place % 3) for place, score in enumerate(scores)]
    shuffled = list(entries)
    shuffler.shuffle(shuffled)  # type: ignore[attr-defined]
    assert listed(entries) == listed(shuffled)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([], []),
        ([0.123], [0.1]),
        ([0.10, 0.14, 0.19], [0.1, 0.1, 0.1]),  # small gains do not move it, however many
        ([0.10, 0.26], [0.1, 0.3]),
        ([0.30, 0.10, 0.20], [0.3, 0.3, 0.3]),
        ([0.10, 0.20], [0.1, 0.1]),  # exactly one step is not more than a step
    ],
)
def test_score_moves_only_by_more_than_a_step(scores: list[float], expected: list[float]) -> None:
    assert shown(scores, 0.1) == expected


def test_shown_score_tells_no_more_than_its_steps() -> None:
    assert set(shown([i / 1000 for i in range(1000)], 0.125)) <= {i * 0.125 for i in range(9)}


def shown(scores: list[float], step: float) -> list[float]:
    tries = [Try(str(i), START + timedelta(hours=i), score) for i, score in enumerate(scores)]
    return [round(rung.score, 9) for rung in climb(tries, step=step).values()]
