"""Arrays by side: stored, derived, counted, missing."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.metrics import Inputs, InvalidMetricInput, MissingArray, Side, evaluate, metric
from lethe.metrics.attacks.svc_efficacy import (
    confidence,
    correctness,
    entropy,
    modified_entropy,
    modified_entropy_published,
)
from lethe.metrics.core.registry import Feature


def test_derived_array_follows_from_stored_ones():
    inputs = Inputs({"confidences": np.zeros((2, 3))})
    assert inputs.array(Side.UNLEARNED, "forget_loss") == pytest.approx(np.full((2, 3), np.log(2.0)))


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


@pytest.mark.parametrize("side", [Side.ORACLE, Side.ORIGINAL])
def test_array_of_runs_is_not_asked_of_trained_models(side):
    inputs = Inputs({}, oracle={"test_accuracy": np.zeros(3)}, original={"test_accuracy": np.zeros(1)})
    with pytest.raises(MissingArray, match=f"the {side} models have no `wall_time_s`: only unlearning runs have it"):
        inputs.array(side, "wall_time_s")


def test_missing_side_is_named():
    with pytest.raises(MissingArray, match="give the arrays of the original models"):
        Inputs({}).array(Side.ORIGINAL, "test_accuracy")


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


def test_file_that_is_no_archive_is_named(tmp_path):
    path = tmp_path / "u.npz"
    path.write_text("no archive")
    with pytest.raises(InvalidMetricInput, match=r"unlearned file .*u.npz cannot be read"):
        Inputs.from_files(unlearned=path)


def test_file_with_one_array_is_refused(tmp_path):
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


def draw(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(4), 12), rng.integers(0, 4, 12)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_features_equal_their_formulas(seed):
    p, y = draw(seed)
    rows = range(len(y))
    assert confidence(p, y).tolist() == [p[i][y[i]] for i in rows]
    assert entropy(p).tolist() == pytest.approx([-sum(x * math.log(x) for x in p[i]) for i in rows])
    expected = [
        -(1 - p[i][y[i]]) * math.log(p[i][y[i]]) - sum(p[i][c] * math.log(1 - p[i][c]) for c in range(4) if c != y[i])
        for i in rows
    ]
    assert modified_entropy(p, y).tolist() == pytest.approx(expected)


def test_certain_predictions_have_finite_features():
    p = np.eye(3)
    assert entropy(p).tolist() == [0.0, 0.0, 0.0]
    assert modified_entropy(p, np.array([0, 1, 2])).tolist() == [0.0, 0.0, 0.0]
    assert np.isfinite(modified_entropy(p, np.array([1, 2, 0]))).all()


def test_correctness_is_one_where_the_label_is_likeliest():
    assert correctness(np.array([[0.6, 0.4], [0.6, 0.4]]), np.array([0, 1])).tolist() == [1.0, 0.0]


def test_published_modified_entropy_depends_on_the_other_labels():
    p, _ = draw(1)
    alone = modified_entropy_published(p[:1], np.array([0]))
    among = modified_entropy_published(p, np.arange(12) % 4)
    assert alone[0] != among[0]
    expected = -((1 - p[0]) * np.log(p[0])).sum()  # every label occurs, so p and 1 - p are exchanged everywhere
    assert among[0] == pytest.approx(expected)
