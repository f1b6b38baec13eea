"""Gap closure, MIAU, its variant, and the tests of table 5."""

import math

import numpy as np
import pytest

from lethe.metrics import InvalidMetricInput
from lethe.metrics.benchmark.rankings import holm, miau_gradual, paired_t, paired_t_of_methods
from lethe.metrics.membership.miau import gap_closure, miau, miau_nan, unlearning_score

ORIGINAL = np.array([[60.0, 56.0, 54.0], [61.0, 57.0, 53.0]])
RETRAINED = np.array([[50.0, 50.0, 50.0], [50.0, 51.0, 50.0]])


@pytest.mark.parametrize(
    ("method", "closure"), [(60.0, 0.0), (50.0, 1.0), (55.0, 0.5), (45.0, 0.5), (65.0, -0.5), (35.0, -0.5)]
)
def test_gap_closure_by_hand(method, closure):
    assert gap_closure(np.array([method]), np.array([50.0]), np.array([60.0])).tolist() == [closure]


def test_half_of_the_gap_scores_fifty():
    assert unlearning_score(0.5) == 50.0


def test_miau_of_the_original_and_of_retraining():
    assert miau(ORIGINAL, RETRAINED, ORIGINAL).value == pytest.approx(0.1007, abs=1e-4)
    assert miau(RETRAINED, RETRAINED, ORIGINAL).value == pytest.approx(99.8993, abs=1e-4)


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
    assert (found.mean, found.effect) == (2.0, 2.0)
    t = 2.0 * math.sqrt(3.0)  # with 2 degrees of freedom the tail has a closed form
    assert found.p_value == pytest.approx(0.5 - t / (2.0 * math.sqrt(2.0 + t * t)))
    assert found.interval == pytest.approx((-0.484138, 4.484138), abs=1e-5)


@pytest.mark.parametrize(("difference", "p_value"), [(1.0, 0.0), (0.0, 0.5), (-1.0, 1.0)])
def test_constant_difference_has_a_p_value_by_its_sign(difference, p_value):
    assert paired_t(np.full(4, difference), np.zeros(4)).p_value == p_value


def test_one_run_is_no_paired_test():
    with pytest.raises(InvalidMetricInput, match="at least 2 runs"):
        paired_t([1.0], [2.0])


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
