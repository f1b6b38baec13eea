import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lethe.metrics.core.inputs import Inputs
from lethe.metrics.core.metric_evaluation import evaluate
from lethe.metrics.membership.umia import distance_from_certainty, indiscernibility

ACCURACIES = arrays(np.float64, st.integers(1, 20), elements=st.floats(0, 1))


@given(st.floats(0, 1))
def test_indiscernibility_does_not_know_the_side_of_chance(accuracy):
    assert distance_from_certainty(accuracy) == pytest.approx(distance_from_certainty(1.0 - accuracy), abs=1e-12)


def test_indiscernibility_is_the_mean_over_models_not_of_the_mean():
    assert indiscernibility(np.array([0.25, 0.75])).value == 0.5


def test_umia_is_evaluated_from_confidences_and_losses():
    rng = np.random.default_rng(0)
    sides = {
        name: {"confidences": rng.normal(3, 2, (5, 40)), "test_loss": rng.gamma(1, 1, (5, 60))}
        for name in ("unlearned", "retrained", "oracle", "original")
    }
    found = evaluate(Inputs(**sides), ["umia", "indiscernibility", "consistent_unforgettability", "ulira_split"])
    assert [entry.not_computed for entry in found.values()] == [""] * 4
    assert all(entry.oracle is not None and entry.original is not None for entry in found.values())
    assert found["umia"].result.interval is not None
