"""Bad arrays: one sentence each, with side, model and example."""

import numpy as np
import pytest

from lethe.metrics import InvalidMetricInput
from lethe.metrics.core.arrays import (
    class_labels,
    model_rows,
    probability_rows,
    real_array,
    require_same_models,
    shares,
)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_value_that_is_not_finite_is_placed(bad):
    rows = np.zeros((3, 4))
    rows[2, 1] = bad
    with pytest.raises(InvalidMetricInput, match=r"oracle losses hold .* at model 2, example 1") as caught:
        model_rows(rows, name="losses", side="oracle")
    assert (caught.value.side, caught.value.model, caught.value.example) == ("oracle", 2, 1)


def test_wrong_number_of_axes_states_the_shape():
    with pytest.raises(InvalidMetricInput, match=r"must have shape \(models, examples\), not \(3,\)"):
        model_rows(np.zeros(3), name="losses", side="unlearned")


def test_empty_axis_is_named():
    with pytest.raises(InvalidMetricInput, match="have no examples"):
        model_rows(np.zeros((3, 0)), name="losses", side="unlearned")


def test_words_are_no_numbers():
    with pytest.raises(InvalidMetricInput, match="must be real numbers"):
        real_array(np.array(["a"]), axes=("examples",), name="losses")


def test_share_outside_its_range_is_placed():
    with pytest.raises(InvalidMetricInput, match=r"within \[0, 1\], not 1.5 at model 1"):
        shares([0.5, 1.5], axes=("models",), name="accuracies", side="retrained")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_probabilities_are_returned_as_float64(dtype):
    rows = np.full((2, 3, 4), 0.25, dtype)
    assert probability_rows(rows, name="probabilities", side="unlearned").dtype == np.float64


def test_probabilities_that_do_not_sum_to_one_are_placed():
    rows = np.full((2, 3, 4), 0.25)
    rows[1, 2, 0] = 0.3
    with pytest.raises(InvalidMetricInput, match=r"model 1, example 2 sum to 1.05, not to 1"):
        probability_rows(rows, name="probabilities", side="unlearned")


def test_negative_probability_is_placed():
    rows = np.full((1, 2, 2), 0.5)
    rows[0, 1] = (-0.5, 1.5)
    with pytest.raises(InvalidMetricInput, match=r"not -0.5 at model 0, example 1, class 0"):
        probability_rows(rows, name="probabilities", side="unlearned")


def test_one_class_is_refused():
    with pytest.raises(InvalidMetricInput, match="at least 2 classes, not 1"):
        probability_rows(np.ones((2, 3, 1)), name="probabilities", side="unlearned")


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        ([0, 3], r"within 0..2, not 3 at example 1"),
        ([0.5, 1.0], "whole class numbers"),
        ([0, 1, 2], r"must have shape \(2,\)"),
    ],
)
def test_wrong_labels_are_refused(labels, sentence):
    with pytest.raises(InvalidMetricInput, match=sentence):
        class_labels(labels, n_examples=2, n_classes=3, name="labels")


def test_unequal_numbers_are_stated_side_by_side():
    with pytest.raises(InvalidMetricInput, match="unlearned has 3, retrained has 4"):
        require_same_models(unlearned=np.zeros(3), retrained=np.zeros(4))
