"""MIAU and its gradual check, paired tests, the Pareto frontier and groups of similar methods."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.metrics import InvalidMetricInput
from lethe.metrics.benchmark.rankings import (
    holm,
    miau_gradual,
    paired_t,
    paired_t_of_methods,
    pareto_counts,
    pareto_frontier,
    pareto_result,
    ranking_groups,
    ranking_result,
)
from lethe.metrics.membership.miau import gap_closure, miau, miau_nan

ORIGINAL = np.array([[60.0, 56.0, 54.0], [61.0, 57.0, 53.0]])
RETRAINED = np.array([[50.0, 50.0, 50.0], [50.0, 51.0, 50.0]])


@pytest.mark.parametrize(
    ("method", "closure"), [(60.0, 0.0), (50.0, 1.0), (55.0, 0.5), (45.0, 0.5), (65.0, -0.5), (35.0, -0.5)]
)
def test_gap_closure_by_hand(method, closure):
    assert gap_closure(np.array([method]), np.array([50.0]), np.array([60.0])).tolist() == [closure]


def test_task_without_a_gap_scores_even_retraining_low():
    original = ORIGINAL.copy()
    original[0, 1] = RETRAINED[0, 1]
    found = miau(RETRAINED, RETRAINED, original)
    assert found.per_run[0] == pytest.approx(66.6331, abs=1e-4)
    assert any("B = R" in note for note in found.notes)
    assert miau_nan(RETRAINED, RETRAINED, original).value == pytest.approx(99.8993, abs=1e-4)


def test_run_without_any_gap_is_left_out_of_the_variant():
    original = ORIGINAL.copy()
    original[1] = RETRAINED[1]
    found = miau_nan(RETRAINED, RETRAINED, original)
    assert math.isnan(found.per_run[1])
    assert found.value == pytest.approx(99.8993, abs=1e-4)
    everywhere = miau_nan(RETRAINED, RETRAINED, RETRAINED)
    assert math.isnan(everywhere.value)


def test_unresolved_gap_is_noted():
    noisy = ORIGINAL.copy()
    noisy[:, 2] = (60.0, 40.5)
    found = miau(RETRAINED, RETRAINED, noisy)
    assert found.table["gap_over_error_test_retain"] < 2.0
    assert any(note.startswith("test_retain is not resolved") for note in found.notes)


@pytest.mark.parametrize("weights", [(0.5, 0.5, 0.5), (-0.5, 0.5, 1.0), (1.0, 0.0)])
def test_wrong_weights_are_refused(weights):
    with pytest.raises(InvalidMetricInput, match="whose sum is 1"):
        miau(ORIGINAL, RETRAINED, ORIGINAL, weights=weights)


def test_paired_t_is_the_textbooks():
    found = paired_t([3.0, 5.0, 7.0], [2.0, 3.0, 4.0])
    t = 2.0 * math.sqrt(3.0)  # with 2 degrees of freedom the tail has a closed form
    assert (found.mean, found.effect) == (2.0, 2.0)
    assert found.p_value == pytest.approx(0.5 - t / (2.0 * math.sqrt(2.0 + t * t)))
    with pytest.raises(InvalidMetricInput, match="at least 2 runs"):
        paired_t([1.0], [2.0])


@pytest.mark.parametrize(("difference", "p_value"), [(1.0, 0.0), (0.0, 0.5), (-1.0, 1.0)])
def test_constant_difference_has_a_p_value_by_its_sign(difference, p_value):
    assert paired_t(np.full(4, difference), np.zeros(4)).p_value == p_value


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]).tolist() == pytest.approx([0.03, 0.06, 0.06])


def test_paired_tests_find_the_better_method():
    rng = np.random.default_rng(0)
    low = rng.normal(size=10)
    found = paired_t_of_methods([low, low + rng.normal(5.0, 0.1, 10)])
    assert found.arrays["p_value"][1, 0] < 0.001 < found.arrays["p_value"][0, 1]


def test_gradual_check_finds_the_step_that_falls():
    rng = np.random.default_rng(0)
    levels = np.array([10.0, 30.0, 25.0])[:, None] + rng.normal(0.0, 0.5, (3, 10))
    found = miau_gradual(levels)
    assert found.table["negative_steps"] == 1
    assert found.value == pytest.approx(-5.0, abs=1.0)
    assert found.arrays["p_holm"][0] < 0.05 < found.arrays["p_holm"][1]


def test_spread_is_of_the_runs_that_have_a_value():
    original = np.array([[60.0, 55.0, 52.0]] * 3)
    retrained = np.array([[50.0, 50.0, 51.0], [50.0, 51.0, 50.0], [60.0, 55.0, 52.0]])
    found = miau_nan(original - 4.0, retrained, original)
    assert np.isnan(found.per_run).tolist() == [False, False, True]
    assert found.standard_deviation == pytest.approx(found.per_run[:2].std(ddof=1))
    assert miau_nan(original[1:], retrained[1:], original[1:]).standard_deviation is None


SEEDS = st.integers(0, 2**32 - 1)


def literal(points: np.ndarray) -> list[bool]:
    def dominated(p):
        return any(all(q <= p) and any(q < p) for q in points)

    return [not dominated(p) for p in points]


def draw(seed: int, n_methods: int = 9, n_metrics: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 6, (n_methods, n_metrics)) / 6.0


@settings(max_examples=50, deadline=None)
@given(SEEDS, st.integers(1, 15), st.integers(1, 4))
def test_frontier_equals_the_definition(seed, n_methods, n_metrics):
    points = draw(seed, n_methods, n_metrics)
    assert pareto_frontier(points).tolist() == literal(points)
    points[0, 0] = np.nan  # a method that failed is off the frontier and dominates none
    assert pareto_frontier(points).tolist() == [False, *literal(points[1:])]


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_noise_takes_nothing_off_the_frontier(seed):
    points = draw(seed)
    errors = np.random.default_rng(seed).random(points.shape)
    plain, tolerant = pareto_frontier(points), pareto_frontier(points, standard_errors=errors)
    assert (tolerant | ~plain).all()


def test_methods_that_differ_by_no_more_than_the_error_do_not_dominate():
    points = np.array([[1.0, 2.0], [1.0, 2.0], [2.0, 3.0]])
    assert pareto_frontier(points, standard_errors=np.zeros((3, 2))).tolist() == [True, True, False]
    assert pareto_frontier(points, standard_errors=np.full((3, 2), [[1.0], [0.0], [0.0]])).tolist() == [True] * 2 + [
        False
    ]


def test_counts_add_the_cells():
    cells = np.stack([draw(seed) for seed in range(5)])
    assert pareto_counts(cells).tolist() == np.sum([literal(cell) for cell in cells], axis=0).tolist()
    assert pareto_result(cells).table["cells_on_frontier"] == pareto_counts(cells).tolist()


@pytest.mark.parametrize(
    ("losses", "errors", "message"),
    [
        (np.zeros(3), None, "finite or NaN"),
        (np.full((2, 2), np.inf), None, "finite or NaN"),
        (np.zeros((2, 2)), np.zeros((2, 3)), "shape of the losses"),
        (np.zeros((2, 2)), -np.ones((2, 2)), ">= 0"),
    ],
)
def test_bad_losses_are_refused(losses, errors, message):
    with pytest.raises(InvalidMetricInput, match=message):
        pareto_frontier(losses, standard_errors=errors)
    if errors is None:
        with pytest.raises(InvalidMetricInput, match="of shape"):
            ranking_groups(losses, higher_is_better=True)


@pytest.mark.parametrize(
    ("row", "groups"),
    [
        ([0.5, 0.5, 0.5, 0.5], [1, 1, 1, 1]),
        ([0.2, 0.1, 0.2, 0.2], [2, 1, 2, 2]),
        ([0.3], [1]),
        ([np.nan, np.nan], [0, 0]),
    ],
)
def test_few_different_values_make_as_many_groups(row, groups):
    assert ranking_groups(np.array([row]), higher_is_better=False).groups[0].tolist() == groups


def test_the_result_counts_the_methods_that_share_the_first_rank():
    found = ranking_result(np.array([[0.1, 0.1, 0.5, 0.9, np.nan], [0.1, 0.1, 0.5, 0.9, 0.9]]))
    assert found.value == 2.0
    assert found.table == {
        "group_1": [2, 2, 0, 0, 0],
        "group_2": [0, 0, 2, 0, 0],
        "group_3": [0, 0, 0, 2, 1],
        "failed": [0, 0, 0, 0, 1],
        "rank": [1, 1, 2, 3, 4],
    }
    assert ranking_result(np.array([[0.1, 0.5]]), higher_is_better=True).table["rank"] == [2, 1]
