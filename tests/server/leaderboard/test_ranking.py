"""The rules of a board, on hand-made entries."""

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.leaderboard.ranking import Entry, RowKind, rank

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


def listed(entries: list[Entry], **options: object) -> list[tuple[int | None, str]]:
    return [(row.rank, row.entry.team) for row in rank(entries, oracle=None, **options)]  # type: ignore[arg-type]


def test_equal_scores_share_a_rank_and_the_next_is_skipped() -> None:
    entries = [entry("a", 0.1), entry("b", 0.3), entry("c", 0.2, minute=2), entry("d", 0.2, minute=1)]
    assert listed(entries) == [(1, "b"), (2, "d"), (2, "c"), (4, "a")]


def test_of_equal_scores_the_earlier_submission_is_listed_first() -> None:
    assert listed([entry("late", 0.2, minute=9), entry("early", 0.2, minute=1)]) == [(1, "early"), (1, "late")]


@pytest.mark.parametrize("nothing", [None, math.nan, math.inf, -math.inf])
def test_an_entry_without_a_finite_score_has_no_row(nothing: float | None) -> None:
    assert listed([entry("unscored", nothing), entry("scored", 0.0)]) == [(1, "scored")]


def test_a_score_of_zero_is_a_score() -> None:
    assert listed([entry("zero", 0.0)]) == [(1, "zero")]


def test_a_baseline_stands_at_its_place_and_takes_no_rank() -> None:
    entries = [entry("first", 0.3), entry("host", 0.2, kind=RowKind.BASELINE), entry("second", 0.1)]
    assert listed(entries) == [(1, "first"), (None, "host"), (2, "second")]


def test_an_unconfirmed_score_stands_at_its_place_and_others_are_ranked_without_it() -> None:
    entries = [entry("first", 0.3), entry("held", 0.2, kind=RowKind.UNCONFIRMED), entry("second", 0.1)]
    assert listed(entries) == [(1, "first"), (None, "held"), (2, "second")]


def test_the_oracle_stands_before_a_team_of_the_same_score() -> None:
    entries = [entry("team", 0.2), entry("", 0.2, kind=RowKind.ORACLE)]
    assert listed(entries) == [(None, ""), (1, "team")]


def test_what_is_disqualified_stands_last_without_a_rank() -> None:
    entries = [entry("cheat", 0.9, kind=RowKind.DISQUALIFIED), entry("honest", 0.1)]
    assert listed(entries) == [(1, "honest"), (None, "cheat")]


def test_every_row_tells_its_share_of_the_oracle() -> None:
    rows = rank([entry("a", 0.05)], oracle=0.2)
    assert rows[0].share_of_oracle == pytest.approx(0.25)


def test_a_share_of_the_oracle_may_exceed_one() -> None:
    assert rank([entry("a", 0.3)], oracle=0.2)[0].share_of_oracle == pytest.approx(1.5)


def test_a_score_of_zero_is_no_share_of_the_oracle() -> None:
    rows = rank([entry("b", 0.0), entry("a", 0.5)], oracle=0.2)
    assert [(row.entry.team, row.rank) for row in rows] == [("a", 1), ("b", 2)]
    assert rows[1].share_of_oracle == 0.0


def test_an_oracle_of_zero_gives_no_share() -> None:
    assert rank([entry("a", 0.05)], oracle=0.0)[0].share_of_oracle is None


def test_tied_groups_are_numbered_down_the_board() -> None:
    entries = [
        entry("a", 0.30)._replace(tied_group=0),
        entry("b", 0.27)._replace(tied_group=0),
        entry("c", 0.24)._replace(tied_group=2),  # group 1 was a team that has left
        entry("d", 0.20),
    ]
    rows = rank(entries, oracle=None, show_ties=True)
    assert [(row.entry.team, row.tied_group) for row in rows] == [("a", 1), ("b", 1), ("c", 2), ("d", None)]


def test_groups_are_not_made_unless_they_are_asked_for() -> None:
    assert rank([entry("a", 0.3)._replace(tied_group=0)], oracle=None)[0].tied_group is None


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
