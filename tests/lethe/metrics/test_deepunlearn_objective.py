import numpy as np
import pytest

from lethe.metrics.benchmark.training_choices import deepunlearn_objective
from lethe.metrics.core.invalid_input import InvalidMetricInput


def test_losses_are_weighted_as_published():
    result = deepunlearn_objective([0.9, 0.6, 0.7], [1.0, 0.3, 0.7], 0.75)
    assert result.table["retain"] == pytest.approx(0.1 / 3)
    assert result.table["forget"] == pytest.approx(0.1)
    assert result.table["validation"] == 0.0
    assert result.table["discernibility"] == pytest.approx(0.5)
    assert result.value == pytest.approx(np.sqrt(0.01 / 9 + 0.01 + 0.25))


def test_retrained_model_with_an_attack_at_chance_is_ideal():
    assert deepunlearn_objective([1.0, 0.5, 0.6], [1.0, 0.5, 0.6], 0.5).value == 0.0


@pytest.mark.parametrize(
    ("accuracies", "attack", "message"),
    [([0.5, 0.5], 0.5, "3, not 2"), ([0.5, 0.5, 1.5], 0.5, "within"), ([0.5, 0.5, 0.5], [0.1, 0.2], "one number")],
)
def test_bad_accuracies_are_refused(accuracies, attack, message):
    with pytest.raises(InvalidMetricInput, match=message):
        deepunlearn_objective(accuracies, [0.5, 0.5, 0.5], attack)
