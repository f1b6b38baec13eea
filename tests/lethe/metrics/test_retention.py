import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lethe.metrics.accuracy.gaps import retdev, retention, sape, symmetric_percentage_error
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.cost.cost import rte

ACCURACIES = arrays(np.float64, st.integers(1, 12), elements=st.floats(0.01, 1))


def six(unlearned, retrained):
    return dict.fromkeys(("retain", "forget", "test"), unlearned) | {
        f"retrained_{part}": retrained for part in ("retain", "forget", "test")
    }


@given(ACCURACIES)
def test_retrained_models_retain_everything(accuracies):
    same = six(accuracies, accuracies)
    assert (retention(**same).value, retdev(**same).value) == (1.0, 0.0)


@given(ACCURACIES, ACCURACIES)
def test_retdev_is_never_negative_and_sums_deviations(unlearned, retrained):
    result = retdev(**six(unlearned, retrained))
    assert result.value == pytest.approx(3 * abs(1 - unlearned.mean() / retrained.mean()))


def test_retention_divides_means_not_runs():
    accuracies = six(np.array([0.5, 1.0]), np.array([1.0, 0.5])) | {"forget": np.array([0.25, 0.5])}
    result = retention(**accuracies, part="forget")
    assert result.value == 0.5
    assert result.table == {"retain_retention": 1.0, "forget_retention": 0.5, "test_retention": 1.0}


def test_reference_accuracy_of_zero_is_refused():
    with pytest.raises(InvalidMetricInput, match="mean forget accuracy is 0"):
        retdev(**six(np.ones(3), np.ones(3)) | {"retrained_forget": np.zeros(3)})


def test_rte_takes_the_median_run():
    result = rte(np.array([1.0, 2.0, 100.0]), np.array(10.0))
    assert result.value == 5.0
    assert result.per_run.tolist() == [10.0, 5.0, 0.1]


@given(st.floats(0, 1), st.floats(0, 1))
def test_sape_is_symmetric_and_within_its_bounds(a, b):
    error = symmetric_percentage_error(a, b)
    assert 0.0 <= error <= 100.0 + 1e-9
    assert error == symmetric_percentage_error(b, a)


def test_sape_of_two_zeros_is_zero():
    assert sape(np.zeros(2), np.zeros(3)).value == 0.0
