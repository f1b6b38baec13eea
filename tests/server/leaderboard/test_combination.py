"""The rules that make one score of several tasks', against values worked out by hand."""

import numpy as np
import pytest

from lethe.competition.tasks_section import Combine
from server.leaderboard.combination import TaskScore, combine, interval

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


def test_error_of_a_mean_is_that_of_independent_tasks() -> None:
    team = {name: drawn(k, 0.3, error) for k, (name, error) in enumerate(zip(NAMES, (0.03, 0.06, 0.02), strict=True))}
    (found,) = found_with_errors(Combine(by="mean"), team)
    assert found.standard_error == pytest.approx(np.sqrt(0.03**2 + 0.06**2 + 0.02**2) / 3, rel=0.05)
    low, high = interval(found)
    assert (
        high - found.score == pytest.approx(found.score - low) == pytest.approx(1.96 * found.standard_error, rel=1e-4)
    )


@pytest.mark.parametrize("seed", range(8))
def test_error_does_not_rest_on_one_order_of_few_replicates(seed: int) -> None:
    team = {name: drawn(10 * seed + k, 0.3, 0.03, length=64) for k, name in enumerate(NAMES)}
    (found,) = found_with_errors(Combine(by="mean"), team)
    assert found.standard_error == pytest.approx(0.03 / np.sqrt(3), rel=0.03)


def test_replicates_of_tasks_do_not_line_up() -> None:
    """All tasks leave out the same numbers of models: taken together as they stand, their errors would add up."""
    team = dict.fromkeys(NAMES, drawn(1, 0.3, 0.03))
    (found,) = found_with_errors(Combine(by="mean"), team)
    assert found.standard_error == pytest.approx(0.03 / np.sqrt(3), rel=0.05)


def test_error_of_a_harmonic_mean_follows_its_slope() -> None:
    team = {"faces": drawn(1, 0.2, 0.004), "digits": drawn(2, 0.4, 0.004), "authors": drawn(3, 0.4, 0.004)}
    (found,) = found_with_errors(Combine(by="harmonic-mean"), team)
    slopes = np.array([found.score**2 / (3 * value**2) for value in (0.2, 0.4, 0.4)])
    assert found.standard_error == pytest.approx(0.004 * np.linalg.norm(slopes), rel=0.05)


def test_error_of_the_worst_is_that_of_the_task_that_is_it() -> None:
    team = {"faces": drawn(1, 0.1, 0.01), "digits": drawn(2, 0.6, 0.05), "authors": drawn(3, 0.7, 0.05)}
    (found,) = found_with_errors(Combine(by="worst"), team)
    assert found.standard_error == pytest.approx(0.01, rel=0.05)


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
