import numpy as np
import pytest

from lethe.metrics.benchmark.training_choices import amenability, budget_strength
from lethe.metrics.core.invalid_input import InvalidMetricInput


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
