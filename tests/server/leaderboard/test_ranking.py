"""The rules of a board, of its ladder and of tasks combined, on hand-made entries against values worked out by hand."""

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.competition.task import Combine
from server.leaderboard.combination import TaskScore, combine, interval
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


NAMES = ("faces", "digits", "authors")


def scores(*values: float | None) -> dict[str, TaskScore]:
    return {name: TaskScore(value) for name, value in zip(NAMES, values, strict=True) if value is not None}


def combined(rule: Combine, *teams: dict[str, TaskScore], ranked: tuple[bool, ...] = ()) -> list[float | None]:
    found = combine(teams, rule, names=NAMES, ranked=ranked or [True] * len(teams))
    return [None if each is None else round(each.score, 12) for each in found]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Combine(by="mean"), (0.1 + 0.2 + 0.4) / 3),
        (Combine(by="mean", weights={"authors": 2.0}), (0.1 + 0.2 + 0.8) / 4),
        (Combine(by="harmonic-mean"), 3 / (10 + 5 + 2.5)),
        (Combine(by="harmonic-mean", weights={"faces": 3.0}), 5 / (30 + 5 + 2.5)),
        (Combine(by="worst"), 0.1),
    ],
)
def test_rules_of_scores_give_what_a_hand_computes(rule: Combine, expected: float) -> None:
    assert combined(rule, scores(0.1, 0.2, 0.4)) == [pytest.approx(expected)]


def test_rank_mean_shares_ranks_between_equal_scores() -> None:
    # faces: 1, 2.5, 2.5, 4; digits: 2, 1, 3, 4; authors: 2, 2, 2, 4
    teams = (scores(0.4, 0.2, 0.3), scores(0.3, 0.5, 0.3), scores(0.3, 0.1, 0.3), scores(0.1, 0.05, 0.2))
    ranks = [(1 + 2 + 2) / 3, (2.5 + 1 + 2) / 3, (2.5 + 3 + 2) / 3, 4.0]
    assert combined(Combine(by="rank-mean"), *teams) == [pytest.approx((5 - rank) / 4) for rank in ranks]


def test_rank_mean_weighs_tasks() -> None:
    teams = scores(0.4, 0.2, 0.3), scores(0.3, 0.5, 0.4)
    rule = Combine(by="rank-mean", weights={"faces": 3.0})
    assert combined(rule, *teams) == [pytest.approx((3 - 7 / 5) / 2), pytest.approx((3 - 8 / 5) / 2)]


def test_references_change_nobodys_rank() -> None:
    teams = scores(0.4, 0.2, 0.3), scores(0.9, 0.9, 0.9), scores(0.3, 0.1, 0.2)
    found = combined(Combine(by="rank-mean"), *teams, ranked=(True, False, True))
    assert found == [1.0, 1.0, 0.5]


@pytest.mark.parametrize("by", ["harmonic-mean", "worst"])
def test_a_missing_task_counts_as_zero(by: str) -> None:
    assert combined(Combine.model_validate({"by": by}), scores(0.4, None, 0.2), scores(0.4, 0.0, 0.2)) == [0.0, 0.0]


def test_a_missing_task_lowers_the_mean_and_shares_the_last_rank() -> None:
    teams = scores(0.4, None, 0.2), scores(0.3, 0.3, 0.3), scores(0.2, None, 0.1)
    assert combined(Combine(by="mean"), *teams)[0] == pytest.approx(0.2)
    ranks = [(1 + 2.5 + 2) / 3, (2 + 1 + 1) / 3, (3 + 2.5 + 3) / 3]
    assert combined(Combine(by="rank-mean"), *teams) == [pytest.approx((4 - rank) / 3) for rank in ranks]


def test_a_missing_task_can_be_refused() -> None:
    teams = scores(0.4, None, 0.2), scores(0.3, 0.3, 0.3), {}
    assert combined(Combine(by="mean", missing="refuse"), *teams) == [None, pytest.approx(0.3), None]
    assert combined(Combine(by="rank-mean", missing="refuse"), *teams) == [None, 1.0, None]
    assert combined(Combine(by="mean"), {}) == [None]


def drawn(seed: int, value: float, error: float, *, shared: float = 0.0, length: int = 4000) -> TaskScore:
    """A score whose replicates have this standard error; `shared`: what all teams' replicates have in common."""
    of_all = np.random.default_rng(99).standard_normal(length) * shared
    own = np.random.default_rng(seed).standard_normal(length)
    headline = value + of_all + error * (own - own.mean()) / own.std(ddof=1)
    return TaskScore(value, {"headline": headline.tolist(), "factor": 1.0, "seed": 0, "n_models": 8})


def found_with_errors(rule: Combine, *teams: dict[str, TaskScore]) -> list:
    return combine(teams, rule, names=NAMES, ranked=[True] * len(teams), with_errors=True)


def test_error_does_not_rest_on_one_order_of_few_replicates() -> None:
    for seed in range(8):
        team = {name: drawn(10 * seed + k, 0.3, 0.03, length=64) for k, name in enumerate(NAMES)}
        (found,) = found_with_errors(Combine(by="mean"), team)
        assert found.standard_error == pytest.approx(0.03 / np.sqrt(3), rel=0.03)


def test_teams_that_share_their_error_are_told_apart() -> None:
    alone = [{name: drawn(10 * t + k, 0.3 + 0.02 * t, 0.03) for k, name in enumerate(NAMES)} for t in range(2)]
    assert [each.tied_group for each in found_with_errors(Combine(by="mean"), *alone)] == [0, 0]
    shared = [
        {name: drawn(10 * t + k, 0.3 + 0.02 * t, 0.001, shared=0.03) for k, name in enumerate(NAMES)} for t in range(2)
    ]
    assert [each.tied_group for each in found_with_errors(Combine(by="mean"), *shared)] == [1, 0]
    assert found_with_errors(Combine(by="mean"), *shared)[0].standard_error > 0.015


def test_no_intervals_where_replicates_are_missing_or_not_paired() -> None:
    good = {name: drawn(k, 0.3, 0.03) for k, name in enumerate(NAMES)}
    without = good | {"faces": TaskScore(0.3)}
    other = good | {"faces": drawn(1, 0.3, 0.03, length=100)}
    for teams in ((without,), (good, other)):
        assert all(each.standard_error is None and each.tied_group is None for each in _found(*teams))
    lacking = {name: good[name] for name in ("faces", "digits")}  # a missing task is 0 for certain
    assert _found(lacking)[0].standard_error == pytest.approx(0.03 * np.sqrt(2) / 3, rel=0.05)


def _found(*teams: dict[str, TaskScore]) -> list:
    return found_with_errors(Combine(by="mean"), *teams)


@pytest.mark.parametrize(
    ("by", "drawn_of", "expected"),
    [
        ("mean", ((1, 0.3, 0.03), (2, 0.3, 0.06), (3, 0.3, 0.02)), np.linalg.norm((0.03, 0.06, 0.02)) / 3),
        # All tasks leave out the same numbers of models: taken together as they stand, their errors would add up.
        ("mean", ((1, 0.3, 0.03),) * 3, 0.03 / np.sqrt(3)),
        ("worst", ((1, 0.1, 0.01), (2, 0.6, 0.05), (3, 0.7, 0.05)), 0.01),
        ("harmonic-mean", ((1, 0.2, 0.004), (2, 0.4, 0.004), (3, 0.4, 0.004)), None),  # it follows its slope
    ],
)
def test_error_is_that_of_independent_tasks(by, drawn_of, expected):
    team = {name: drawn(*values) for name, values in zip(NAMES, drawn_of, strict=True)}
    (found,) = found_with_errors(Combine.model_validate({"by": by}), team)
    slopes = np.array([found.score**2 / (3 * value**2) for _, value, _ in drawn_of])
    expected = 0.004 * np.linalg.norm(slopes) if expected is None else expected
    assert found.standard_error == pytest.approx(expected, rel=0.05)
    low, high = interval(found)
    half = pytest.approx(1.96 * found.standard_error, rel=1e-4)
    assert high - found.score == half
    assert found.score - low == half
