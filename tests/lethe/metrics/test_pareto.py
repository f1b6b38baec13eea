import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.metrics import InvalidMetricInput
from lethe.metrics.benchmark.rankings import pareto_counts, pareto_frontier, pareto_result

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


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_noise_takes_nothing_off_the_frontier(seed):
    points = draw(seed)
    errors = np.random.default_rng(seed).random(points.shape)
    plain, tolerant = pareto_frontier(points), pareto_frontier(points, standard_errors=errors)
    assert (tolerant | ~plain).all()


def test_clear_domination_needs_one_error_in_every_metric():
    points = np.array([[0.0, 0.0], [0.1, 1.0], [1.0, 1.0]])
    errors = np.full((3, 2), 0.2)
    assert pareto_frontier(points).tolist() == [True, False, False]
    assert pareto_frontier(points, standard_errors=errors).tolist() == [True, True, False]


def test_equal_methods_are_both_on_the_frontier():
    assert pareto_frontier(np.array([[1.0, 2.0], [1.0, 2.0], [2.0, 2.0]])).tolist() == [True, True, False]


def test_methods_that_differ_by_no_more_than_the_error_do_not_dominate():
    points = np.array([[1.0, 2.0], [1.0, 2.0], [2.0, 3.0]])
    assert pareto_frontier(points, standard_errors=np.zeros((3, 2))).tolist() == [True, True, False]
    assert pareto_frontier(points, standard_errors=np.full((3, 2), [[1.0], [0.0], [0.0]])).tolist() == [True] * 2 + [
        False
    ]


def test_failed_method_is_off_the_frontier_and_dominates_none():
    assert pareto_frontier(np.array([[np.nan, 0.0], [1.0, 1.0]])).tolist() == [False, True]


def test_counts_add_the_cells():
    cells = np.stack([draw(seed) for seed in range(5)])
    assert pareto_counts(cells).tolist() == np.sum([literal(cell) for cell in cells], axis=0).tolist()
    assert pareto_result(cells).table["cells_on_frontier"] == pareto_counts(cells).tolist()


def test_result_counts_methods_that_are_on_a_frontier_somewhere():
    always_dominated = [[[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]], [[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]]]
    assert pareto_result(np.array(always_dominated)).value == 2.0


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
