"""Bad arrays: one sentence each, with side, model and example."""

import numpy as np
import pytest

from lethe.metrics import InvalidMetricInput
from lethe.metrics.core.arrays import (
    class_labels,
    real_array,
    require_same_models,
    shares,
)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_value_that_is_not_finite_is_placed(bad):
    rows = np.zeros((3, 4))
    rows[2, 1] = bad
    with pytest.raises(InvalidMetricInput, match=r"oracle losses hold .* at model 2, example 1") as caught:
        real_array(rows, axes=("models", "examples"), name="losses", side="oracle")
    assert (caught.value.side, caught.value.model, caught.value.example) == ("oracle", 2, 1)


def test_wrong_number_of_axes_states_the_shape():
    with pytest.raises(InvalidMetricInput, match=r"must have shape \(models, examples\), not \(3,\)"):
        real_array(np.zeros(3), axes=("models", "examples"), name="losses", side="unlearned")


def test_empty_axis_is_named():
    with pytest.raises(InvalidMetricInput, match="have no examples"):
        real_array(np.zeros((3, 0)), axes=("models", "examples"), name="losses", side="unlearned")


def test_words_are_no_numbers():
    with pytest.raises(InvalidMetricInput, match="must be real numbers"):
        real_array(np.array(["a"]), axes=("examples",), name="losses")


def test_share_outside_its_range_is_placed():
    with pytest.raises(InvalidMetricInput, match=r"within \[0, 1\], not 1.5 at model 1"):
        shares([0.5, 1.5], axes=("models",), name="accuracies", side="retrained")


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
