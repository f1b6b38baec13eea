"""Bounds of epsilon, training recipes and budgets, and what N models can show."""

import numpy as np
import pytest

from lethe.metrics import Inputs, InvalidMetricInput, evaluate
from lethe.metrics.benchmark.training_choices import amenability, budget_strength
from lethe.metrics.forgetting.final_score import SHIFTS, normal_curve, shift_of
from lethe.metrics.membership.epsilon_bound import (
    clopper_pearson_upper,
    epsilon_bound,
    epsilon_bound_bonferroni,
)
from lethe.metrics.membership.one_run import (
    epsilon_f_dp,
    epsilon_one_run,
    one_run_audit,
)
from lethe.metrics.scoring.attacks.family import (
    DELTA,
    EPSILON_CAP,
    AttackFamily,
    few_models_warnings,
    smallest_detectable_shift,
)


def runs(seed, mean=0.0, n=64, examples=4):
    return np.random.default_rng(seed).normal(size=(n, examples)) + mean


def test_upper_bounds_in_closed_form():
    assert clopper_pearson_upper(0, 20, significance=0.05) == pytest.approx(1 - 0.05 ** (1 / 20))
    assert clopper_pearson_upper(20, 20, significance=0.05) == 1.0


def test_separated_runs_reach_the_largest_possible():
    found = epsilon_bound(runs(1, 20.0), runs(2, n=48))
    assert found.value == pytest.approx(found.table["largest_possible"])
    at_once = epsilon_bound_bonferroni(runs(1, 20.0), runs(2, n=48))
    assert 1.0 < at_once.value < at_once.table["largest_possible"]


@pytest.mark.parametrize("bound", [epsilon_bound, epsilon_bound_bonferroni])
def test_bound_is_above_0_for_equal_distributions_at_most_as_often_as_stated(bound):
    above = sum(bound(runs(i, n=24), runs(i + 900, n=24)).value > 0.0 for i in range(80))
    assert above <= 10  # 4 expected at most; more than 10 of 80 has probability 0.002


@pytest.mark.parametrize("bound", [epsilon_f_dp, epsilon_one_run])
def test_more_right_guesses_show_more_and_chance_shows_nothing(bound):
    given = {"n_examples": 1000, "guesses": 100, "significance": 0.05, "delta": 1e-5}
    found = [bound(correct=n, **given) for n in (0, 50, 80, 95, 100)]
    assert found[:2] == [0.0, 0.0]
    assert 0.0 < found[2] < found[3] < found[4]


@pytest.mark.parametrize("counts", [(10, 12, 5), (10, 5, 6), (10, 0, 0)])
def test_counts_that_do_not_fit_are_refused(counts):
    m, guesses, correct = counts
    with pytest.raises(InvalidMetricInput, match=f"{correct} right of {guesses} guesses on {m} examples"):
        epsilon_f_dp(n_examples=m, guesses=guesses, correct=correct, significance=0.05, delta=1e-5)


def test_one_run_audit_sees_a_run_that_still_knows():
    rng = np.random.default_rng(1)
    forget, test = rng.uniform(1.0, 2.0, size=(2, 6, 100))
    knows = one_run_audit(np.zeros((3, 100)), test[:3], forget, test)
    assert knows.table["right"] > 0.9
    assert knows.value > 1.0
    assert one_run_audit(np.ones((3, 100)), np.ones((3, 90)), np.ones((2, 100)), np.ones((2, 90))).value == 0.0
    with pytest.raises(InvalidMetricInput, match="less than one guess"):
        one_run_audit(np.ones((3, 4)), np.ones((3, 4)), np.ones((2, 4)), np.ones((2, 4)))


def test_clear_steps_are_counted():
    noise = np.random.default_rng(0).normal(0, 0.001, (6, 4))
    result = budget_strength(np.array([1.0, 0.99, 0.5, 0.05]) + noise)
    assert (result.value, result.table["clear_rises"]) == (3.0, 0)
    result = budget_strength(np.array([[0.1, 0.5], [0.1, 0.5]]))
    assert (result.value, result.table["clear_rises"]) == (0.0, 1)
    result = budget_strength(np.array([[1.0, 0.9], [1.0, 1.1], [1.0, 0.95]]))
    assert result.value == 0.0
    assert result.table["standard_errors"][0] == pytest.approx(np.std([0.1, -0.1, 0.05], ddof=1) / np.sqrt(3))


@pytest.mark.parametrize("shape", [(1, 3), (3, 1)])
def test_too_few_seeds_or_budgets_are_refused(shape):
    with pytest.raises(InvalidMetricInput, match="at least 2 seeds and 2 budgets"):
        budget_strength(np.zeros(shape))


def test_amenability_compares_gaps_of_the_same_recipe():
    recipes = ("none", "cutmix")
    result = amenability([0.8, 0.6], [0.5, 0.2], [0.1, 0.1], recipes=recipes)
    assert result.value == pytest.approx(0.75)
    assert result.table["removed"] == pytest.approx([1 - 0.4 / 0.7, 1 - 0.1 / 0.5])
    without = amenability([0.1, 0.2], [0.1, 0.2], [0.1, 0.2], recipes=recipes)
    assert np.isnan(without.value)
    assert without.table["removed"] == [None, None]
    assert without.notes
    with pytest.raises(InvalidMetricInput, match="one error per recipe"):
        amenability([0.8, 0.6, 0.1], [0.5, 0.2], [0.1, 0.1], recipes=recipes)


SETTINGS = AttackFamily.REFERENCE, DELTA, EPSILON_CAP


def side(seed, n, shift=0.0):
    return {"confidences": 3.0 + 2.0 * (np.random.default_rng(seed).normal(size=(n, 400)) + shift)}


def test_smallest_detectable_shift_in_closed_form():
    assert smallest_detectable_shift(512) == pytest.approx(2.80159 * np.sqrt(2 / 512), rel=1e-5)


def test_warning_below_64_models_only():
    assert few_models_warnings(64) == []
    assert "N = 63 is below 64" in few_models_warnings(63)[0]


def test_curve_falls_and_is_read_backwards():
    curve = normal_curve(32, SETTINGS)
    assert (np.diff(curve) <= 0.0).all()
    assert shift_of(float(curve[12]), curve) == pytest.approx(SHIFTS[12])
    assert shift_of(1.0, curve) == 0.0
    assert shift_of(-1.0, curve) == SHIFTS[-1]


@pytest.mark.parametrize("metric_id", ["equivalent_shift", "equivalent_shift_oracle"])
def test_equal_shifts_have_equal_values_at_every_n(metric_id):
    found = {}
    for n in (16, 64, 128):
        inputs = Inputs(unlearned=side(1, n, 1.0), retrained=side(2, n), oracle=side(3, n))
        found[n] = evaluate(inputs, [(metric_id, {"attacks": "reference"}), ("f", {"attacks": "reference"})])
    shifts = [results[metric_id].result.value for results in found.values()]
    assert shifts == pytest.approx([1.0] * 3, abs=0.25)
    shares = [results["f"].result.value / results["f"].oracle.value for results in found.values()]
    assert shares[0] > 2 * shares[-1]  # what the correction is for


def test_oracle_itself_has_no_shift():
    inputs = Inputs(unlearned=side(3, 16), retrained=side(2, 16), oracle=side(3, 16))
    assert evaluate(inputs, ["equivalent_shift_oracle"])["equivalent_shift_oracle"].result.value == 0.0
