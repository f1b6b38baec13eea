import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import auc
from sklearn.metrics import roc_curve as reference_curve

from lethe.metrics.attacks.roc import roc_curve
from lethe.metrics.core.invalid_input import InvalidMetricInput


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(3, 200), st.integers(1, 50))
def test_curve_equals_that_of_scikit_learn(seed, n_scores, n_levels):
    rng = np.random.default_rng(seed)
    scores, members = rng.integers(0, n_levels, n_scores) / 7.0, rng.random(n_scores) < 0.5
    members[:2] = True, False
    false_rate, true_rate, _ = reference_curve(members, scores)
    curve = roc_curve(scores, members)
    assert curve.false_positive_rate.tolist() == false_rate.tolist()
    assert curve.true_positive_rate.tolist() == true_rate.tolist()
    assert curve.area == auc(false_rate, true_rate)


def test_equal_scores_are_at_chance():
    curve = roc_curve(np.zeros(10), np.arange(10) < 5)
    assert (curve.area, curve.accuracy, curve.true_positive_rate_below(0.5)) == (0.5, 0.5, 0.0)


def test_low_rate_is_read_before_the_first_false_alarm():
    curve = roc_curve(np.array([5.0, 4.0, 3.0, 2.0]), np.array([True, True, False, True]))
    assert curve.true_positive_rate_below(0.001) == 2 / 3


def test_scores_of_one_kind_are_refused():
    with pytest.raises(InvalidMetricInput, match="members and non-members"):
        roc_curve(np.arange(3.0), np.ones(3, dtype=bool))


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1])
def test_false_positive_rate_outside_its_range_is_refused(rate):
    with pytest.raises(InvalidMetricInput, match="within"):
        roc_curve(np.arange(2.0), np.array([True, False])).true_positive_rate_below(rate)
