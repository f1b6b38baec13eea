"""Arrays by side: stored, derived, counted, missing."""

import numpy as np
import pytest

from lethe.metrics import Inputs, InvalidMetricInput, MissingArray, Side, evaluate, metric
from lethe.metrics.attacks.classifier_attacks import (
    entropy,
    modified_entropy,
)
from lethe.metrics.core.registry import Feature


def test_derived_array_follows_from_derived_ones():
    logits = np.zeros((1, 2, 3))
    logits[0, :, 1] = 5.0
    inputs = Inputs({"forget_logits": logits}, shared={"forget_labels": np.array([1, 0])})
    assert inputs.array(Side.UNLEARNED, "forget_accuracy").tolist() == [0.5]


def test_stored_array_goes_before_a_derived_one():
    inputs = Inputs({"confidences": np.zeros((1, 1)), "forget_loss": np.array([[7.0]])})
    assert inputs.array(Side.UNLEARNED, "forget_loss").tolist() == [[7.0]]


def test_labels_may_lie_in_the_file_of_any_side():
    inputs = Inputs({}, {"forget_labels": np.array([1])})
    assert inputs.array(Side.SHARED, "forget_labels").tolist() == [1]


def test_numbers_of_models_and_classes_are_counted():
    inputs = Inputs({"forget_logits": np.zeros((2, 3, 4))}, {"confidences": np.zeros((5, 3))})
    assert inputs.array(Side.SHARED, "n_models") == 5
    assert inputs.array(Side.SHARED, "n_classes") == 4


def test_single_original_stands_for_as_many_copies():
    inputs = Inputs({}, {"test_accuracy": np.zeros(3)}, original={"test_accuracy": np.array([0.25])})
    assert inputs.array(Side.ORIGINAL, "test_accuracy").tolist() == [0.25] * 3


def test_missing_array_says_its_level_and_how_to_get_it():
    with pytest.raises(
        MissingArray, match=r"`test_logits` of the retrained models is missing \(capture level 2\)"
    ) as e:
        Inputs({}, {}).array(Side.RETRAINED, "test_logits")
    assert (e.value.array, e.value.level, e.value.side) == ("test_logits", 2, "retrained")
    assert "capture" in e.value.how
    with pytest.raises(MissingArray, match="give the arrays of the original models"):
        Inputs({}).array(Side.ORIGINAL, "test_accuracy")


@pytest.mark.parametrize("side", [Side.ORACLE, Side.ORIGINAL])
def test_array_of_runs_is_not_asked_of_trained_models(side):
    inputs = Inputs({}, oracle={"test_accuracy": np.zeros(3)}, original={"test_accuracy": np.zeros(1)})
    with pytest.raises(MissingArray, match=f"the {side} models have no `wall_time_s`: only unlearning runs have it"):
        inputs.array(side, "wall_time_s")


def test_missing_lists_every_array_once():
    missing = Inputs({"confidences": np.zeros((2, 3))}, {}).missing(metric("klom"))
    assert [(error.side, error.array) for error in missing] == [("retrained", "forget_margins")]


def test_feature_is_computed_once_per_side_and_parameters():
    calls = []

    def function(losses, *, seed):
        calls.append(seed)
        return losses.mean(axis=1)

    feature = Feature("counted", function, ("forget_loss",), parameters=("seed",))
    inputs = Inputs({"forget_loss": np.ones((2, 3))})
    for seed in (1, 1, 2):
        inputs.feature(Side.UNLEARNED, feature, {"seed": seed, "other": 0})
    assert calls == [1, 2]


def test_file_without_named_arrays_is_named(tmp_path):
    path = tmp_path / "u.npz"
    path.write_text("no archive")
    with pytest.raises(InvalidMetricInput, match=r"unlearned file .*u.npz cannot be read"):
        Inputs.from_files(unlearned=path)
    np.save(tmp_path / "u.npy", np.zeros(3))
    with pytest.raises(InvalidMetricInput, match="holds one array"):
        Inputs.from_files(unlearned=tmp_path / "u.npy")


@pytest.mark.parametrize("name", ["average_gap_mia", "tow_mia", "mia_loss"])
def test_arrays_of_one_side_with_other_numbers_of_models_are_named(name: str) -> None:
    losses = np.random.default_rng(0).exponential(size=(6, 20))
    ones = np.ones(6)
    side = {"retain_loss": losses, "test_loss": losses, "forget_loss": losses.T, "forget_correct": losses > 1}
    side |= {"retain_accuracy": ones, "test_accuracy": ones}
    refused = evaluate(Inputs(side, side), [name])[name].not_computed
    assert "unequal numbers of" in refused
    assert "unlearned `forget_loss` (20, 6)" in refused


def test_features_of_the_other_sides_are_computed_once_for_all_unlearned_models():
    seen = []

    def mean(confidences):
        seen.append(float(confidences[0, 0]))
        return confidences.mean(axis=1)

    feature = Feature("mean", mean, arrays=("confidences",))
    references = Inputs(retrained={"confidences": np.full((2, 3), 5.0)})
    for level in (1.0, 2.0):
        inputs = references.with_unlearned({"confidences": np.full((2, 3), level)})
        assert inputs.feature(Side.UNLEARNED, feature, {}).tolist() == [level] * 2
        assert inputs.feature(Side.RETRAINED, feature, {}).tolist() == [5.0] * 2
    assert seen == [1.0, 5.0, 2.0]
    assert not references.has(Side.UNLEARNED, "confidences")


def test_what_every_evaluation_stores_is_not_asked_for_by_a_capture_level():
    with pytest.raises(MissingArray, match=r"add `test_accuracy` \[N\] to the arrays of these models") as error:
        Inputs(oracle={"confidences": np.zeros((2, 3))}).array(Side.ORACLE, "test_accuracy")
    assert "`capture`" not in str(error.value)


def test_certain_predictions_have_finite_features():
    p = np.eye(3)
    assert entropy(p).tolist() == [0.0, 0.0, 0.0]
    assert modified_entropy(p, np.array([0, 1, 2])).tolist() == [0.0, 0.0, 0.0]
    assert np.isfinite(modified_entropy(p, np.array([1, 2, 0]))).all()
