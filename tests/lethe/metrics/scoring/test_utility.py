"""Utility ratios."""

import numpy as np
import pytest

from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.score import utility_ratio


def test_the_ratio_of_means():
    assert utility_ratio([0.5, 0.7], [0.8, 0.8], n_models=2) == pytest.approx(0.75)


def test_a_ratio_above_one_is_not_capped():
    assert utility_ratio([1.0, 1.0], [0.5, 0.5], n_models=2) == 2.0


def test_the_order_of_models_changes_not_one_bit():
    rng = np.random.default_rng(0)
    u, r = rng.uniform(0, 1, 513), rng.uniform(0, 1, 513)
    expected = utility_ratio(u, r, n_models=513)
    assert {utility_ratio(rng.permutation(u), rng.permutation(r), n_models=513) for _ in range(20)} == {expected}


@pytest.mark.parametrize("value", [-0.01, 1.01, np.nan, 97.5])
def test_a_value_that_is_no_accuracy_is_named(value):
    with pytest.raises(InvalidScoreInput, match="retrained test accuracy of model 1"):
        utility_ratio([0.5, 0.5], [0.5, value], n_models=2, split="test")


def test_another_number_of_accuracies_is_refused():
    with pytest.raises(InvalidScoreInput, match=r"must have shape \(3,\), not \(2,\)"):
        utility_ratio([0.5, 0.5], [0.5, 0.5, 0.5], n_models=3)


def test_retrained_models_without_any_right_answer_are_refused():
    with pytest.raises(InvalidScoreInput, match="every retrained retain accuracy is 0"):
        utility_ratio([0.5, 0.5], [0.0, 0.0], n_models=2)
