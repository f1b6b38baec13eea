"""Bounds of epsilon and what N can show: closed forms, coverage, and what is refused."""

import numpy as np
import pytest

from lethe.metrics import InvalidMetricInput
from lethe.metrics.benchmark.training_choices import amenability, budget_strength
from lethe.metrics.certificates.epsilon_bound import (
    clopper_pearson_upper,
    epsilon_bound,
    epsilon_bound_bonferroni,
    epsilon_of_counts,
)
from lethe.metrics.certificates.one_run import (
    epsilon_f_dp,
    epsilon_one_run,
    gaussian_delta,
    gaussian_epsilon,
    one_run_audit,
)


def runs(seed, mean=0.0, n=64, examples=4):
    return np.random.default_rng(seed).normal(size=(n, examples)) + mean


def test_upper_bounds_in_closed_form():
    assert clopper_pearson_upper(0, 20, significance=0.05) == pytest.approx(1 - 0.05 ** (1 / 20))
    assert clopper_pearson_upper(20, 20, significance=0.05) == 1.0


def test_bound_without_errors_in_closed_form():
    upper = 1 - 0.025 ** (1 / 30)
    found = epsilon_of_counts(0, 0, n_members=30, n_others=30, significance=0.05, delta=0.01)
    assert found == pytest.approx(np.log((1 - upper - 0.01) / upper))


def test_chance_gives_no_bound():
    assert epsilon_of_counts(15, 15, n_members=30, n_others=30, significance=0.05) == 0.0


def test_separated_runs_reach_the_largest_possible():
    found = epsilon_bound(runs(1, 20.0), runs(2, n=48))
    assert found.value == pytest.approx(found.table["largest_possible"])
    at_once = epsilon_bound_bonferroni(runs(1, 20.0), runs(2, n=48))
    assert 1.0 < at_once.value < at_once.table["largest_possible"]


@pytest.mark.parametrize("bound", [epsilon_bound, epsilon_bound_bonferroni])
def test_bound_is_above_0_for_equal_distributions_at_most_as_often_as_stated(bound):
    above = sum(bound(runs(i, n=24), runs(i + 900, n=24)).value > 0.0 for i in range(80))
    assert above <= 10  # 4 expected at most; more than 10 of 80 has probability 0.002


def test_constants_have_no_bound():
    constant = np.ones((8, 2))
    assert epsilon_bound(constant, constant).value == 0.0


def test_gaussian_mechanism_there_and_back():
    assert gaussian_delta(gaussian_epsilon(0.8, 1e-5), 0.8) == pytest.approx(1e-5, rel=1e-6)
    assert gaussian_epsilon(1e6, 0.1) == 0.0


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


def test_step_within_its_noise_does_not_count():
    values = np.array([[1.0, 0.9], [1.0, 1.1], [1.0, 0.95]])
    result = budget_strength(values)
    assert result.value == 0.0
    assert result.table["standard_errors"][0] == pytest.approx(np.std([0.1, -0.1, 0.05], ddof=1) / np.sqrt(3))


def test_rise_is_no_strength():
    result = budget_strength(np.array([[0.1, 0.5], [0.1, 0.5]]))
    assert (result.value, result.table["clear_rises"]) == (0.0, 1)


def test_order_of_seeds_does_not_matter():
    values = np.random.default_rng(1).normal(0, 1, (5, 3))
    assert budget_strength(values[::-1]).value == budget_strength(values).value


@pytest.mark.parametrize("shape", [(1, 3), (3, 1)])
def test_too_few_seeds_or_budgets_are_refused(shape):
    with pytest.raises(InvalidMetricInput, match="at least 2 seeds and 2 budgets"):
        budget_strength(np.zeros(shape))


def test_amenability_compares_gaps_of_the_same_recipe():
    result = amenability([0.8, 0.6], [0.5, 0.2], [0.1, 0.1], recipes=("none", "cutmix"))
    assert result.value == pytest.approx(0.75)
    assert result.table["removed"] == pytest.approx([1 - 0.4 / 0.7, 1 - 0.1 / 0.5])


def test_amenability_without_a_gap_is_undefined_and_says_so():
    result = amenability([0.1, 0.2], [0.1, 0.2], [0.1, 0.2], recipes=("none", "cutmix"))
    assert np.isnan(result.value)
    assert result.table["removed"] == [None, None]
    assert result.notes


def test_amenability_refuses_unequal_sides():
    with pytest.raises(InvalidMetricInput, match="one error per recipe"):
        amenability([0.8, 0.6, 0.1], [0.5, 0.2], [0.1, 0.1], recipes=("none", "cutmix"))
