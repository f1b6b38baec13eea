"""The score of two sets of outputs."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from lethe.api.split import load_outputs, save_outputs
from lethe.metrics.core.input_warnings import scale_warnings
from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.arrays import logit_scaled_confidences
from lethe.metrics.scoring.attacks.family import AttackFamily
from lethe.metrics.scoring.epsilon import forgetting_quality, n_judged_models, per_example_epsilon
from lethe.metrics.scoring.score import SCORER_VERSION, ModelOutputs, score, utility_ratio


def outputs(seed, shift=0.0, n_models=64, accuracy=0.9):
    rng = np.random.default_rng(seed)
    return ModelOutputs(
        confidences=rng.normal(shift, 1.5, (n_models, 12)),
        retain_accuracy=rng.uniform(accuracy, accuracy + 0.05, n_models),
        test_accuracy=rng.uniform(accuracy - 0.2, accuracy - 0.1, n_models),
    )


@pytest.mark.parametrize("family", list(AttackFamily))
def test_the_final_score_is_the_product_of_its_parts(family):
    u, r = outputs(0, shift=0.3), outputs(1)
    result = score(u, r, attacks=family)
    retain = math.fsum(u.retain_accuracy) / math.fsum(r.retain_accuracy)
    test = math.fsum(u.test_accuracy) / math.fsum(r.test_accuracy)
    assert (result.retain_ratio, result.test_ratio) == (retain, test)
    most = math.inf if family.is_published else 1.0
    assert result.final_score == result.forgetting_quality * min(retain, most) * min(test, most)
    assert result.headline == result.final_score
    judged = n_judged_models(64, attacks=family)
    assert result.forgetting_quality == forgetting_quality(result.epsilon, n_models=judged)
    np.testing.assert_array_equal(result.epsilon, per_example_epsilon(u.confidences, r.confidences, attacks=family))


def test_without_both_accuracies_the_score_is_forgetting_quality_alone():
    u, r = outputs(0), outputs(1)
    result = score(ModelOutputs(u.confidences), ModelOutputs(r.confidences))
    assert (result.retain_ratio, result.test_ratio, result.final_score) == (None, None, None)
    assert result.headline == result.forgetting_quality
    result = score(*(ModelOutputs(side.confidences, test_accuracy=side.test_accuracy) for side in (u, r)))
    assert result.test_ratio is not None
    assert result.final_score is None


def test_an_accuracy_of_one_side_only_is_refused():
    with pytest.raises(InvalidScoreInput, match="retain accuracies are given for one side only: unlearned has none"):
        score(ModelOutputs(outputs(0).confidences, test_accuracy=outputs(0).test_accuracy), outputs(1))


def test_the_interval_surrounds_the_score_and_is_reproducible():
    u, r = outputs(0, shift=0.5), outputs(1)
    first, second = (score(u, r, n_resamples=40, seed=9) for _ in range(2))
    assert first.interval == second.interval
    assert first.interval[0] < first.final_score < first.interval[1]
    low, high = first.forgetting_quality_interval
    assert low < first.forgetting_quality < high
    plain = score(u, r, seed=9)
    assert (plain.final_score, plain.interval) == (first.final_score, None)


def test_wider_accuracy_spread_widens_the_final_interval():
    u, r = outputs(0, shift=0.5), outputs(1)
    unsteady = ModelOutputs(u.confidences, np.where(np.arange(64) % 8, 0.0, 1.0), u.test_accuracy)
    steady = ModelOutputs(u.confidences, np.full(64, 0.125), u.test_accuracy)
    widths = [np.diff(score(side, r, n_resamples=60).interval)[0] for side in (unsteady, steady)]
    assert widths[0] > widths[1]


def test_json_holds_every_documented_key_and_survives_a_round_trip():
    result = score(outputs(0, shift=4.0), outputs(1), n_resamples=20)
    found = json.loads(json.dumps(result.as_json(), allow_nan=False))
    assert found["forgetting_quality"] == result.forgetting_quality
    assert found["epsilon"] == result.epsilon.tolist()
    assert found["final_score"] == result.final_score
    assert found["interval"] == list(result.interval)
    assert found["attacks"] == "crossfit"
    assert found["scorer_version"] == SCORER_VERSION
    assert {"retain_ratio", "test_ratio", "forgetting_quality_interval", "n_models"} <= found.keys()


@pytest.mark.parametrize(
    ("n_resamples", "n_models", "message"),
    [(-1, 8, "at least 20 resamples"), (19, 8, "at least 20 resamples"), (20, 7, "at least 8 models")],
)
def test_too_few_resamples_or_models_are_refused(n_resamples, n_models, message):
    assert score(outputs(0, n_models=8), outputs(1, n_models=8), n_resamples=20).interval is not None
    with pytest.raises(InvalidScoreInput, match=message):
        score(outputs(0, n_models=n_models), outputs(1, n_models=n_models), n_resamples=n_resamples)


def test_the_order_of_models_changes_not_one_bit():
    rng = np.random.default_rng(0)
    u, r = rng.uniform(0, 1, 513), rng.uniform(0, 1, 513)
    expected = utility_ratio(u, r, n_models=513)
    assert {utility_ratio(rng.permutation(u), rng.permutation(r), n_models=513) for _ in range(20)} == {expected}


@pytest.mark.parametrize(
    ("retrained", "message"),
    [
        *(([0.5, value], "retrained test .* model 1") for value in (-0.01, 1.01, np.nan, 97.5)),
        ([0.5, 0.5, 0.5], r"shape \(.*2.*\), not \(3,\)"),
        ([0.0, 0.0], "every retrained test accuracy is 0"),
    ],
)
def test_accuracies_without_a_ratio_are_refused(retrained, message):
    with pytest.raises(InvalidScoreInput, match=message):
        utility_ratio([0.5, 0.5], retrained, n_models=2, split="test")


LOGITS = np.random.default_rng(0).normal(2.0, 3.0, (16, 8))
PROBABILITIES = 1 / (1 + np.exp(-LOGITS))


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (PROBABILITIES, "probabilities"),
        (100 * PROBABILITIES, "percentages"),
        (np.log(PROBABILITIES), "log-probabilities"),
        (20 * LOGITS, "spread 20 times"),
    ],
)
def test_other_scale_is_named_with_its_side(values: np.ndarray, named: str) -> None:
    (first,) = scale_warnings(values, LOGITS)
    assert "unlearned" in first
    assert named in first
    (second,) = scale_warnings(LOGITS, values)
    assert "retrained" in second
    assert scale_warnings(values[:1], LOGITS[:1]) == [], "of a handful of values"
    assert scale_warnings(LOGITS * 2.5 - 4.0, LOGITS) == [], "of logits"


GOLDEN = np.load(Path(__file__).parents[3] / "golden" / "epsilon_golden.npz")


def test_confidences_are_those_of_the_published_program():
    """Their exponentials are float32: another processor may round the last bit otherwise."""
    logits = GOLDEN["logits"].copy()
    found = logit_scaled_confidences(logits, GOLDEN["targets"])
    np.testing.assert_allclose(found, GOLDEN["logit_scaled_confidence"], rtol=1e-6, atol=1e-6, strict=True)
    np.testing.assert_array_equal(logits, GOLDEN["logits"])


def test_two_classes_give_the_difference_of_the_logits_up_to_103_6():
    found = logit_scaled_confidences(
        np.array([[2.0, -1.0], [0.0, 0.0], [1e4, 0.0], [0.0, 1e4]]), np.array([0, 1, 0, 0])
    )
    np.testing.assert_allclose(found[:2], [3.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(found[2:], [103.28, -103.28], atol=0.5)


@pytest.mark.parametrize(
    ("logits", "targets", "message"),
    [
        (np.zeros((2, 3), np.float16), [0, 1], "float32 or float64, not float16"),
        (np.zeros((2, 1), np.float32), [0, 0], "n_classes >= 2"),
        (np.zeros((2, 3), np.float32), [0], "targets must be 2 integers"),
        (np.zeros((2, 3), np.float32), [0.0, 1.0], "targets must be 2 integers"),
        (np.zeros((2, 3), np.float32), [0, 3], "target of example 1 is 3"),
        (np.zeros((2, 3), np.float32), [-1, 0], "target of example 0 is -1"),
        (np.array([[0, 1], [np.nan, 0]], np.float32), [0, 1], "logits of example 1 are not finite"),
    ],
)
def test_what_has_no_confidence_is_refused(logits, targets, message):
    with pytest.raises(InvalidScoreInput, match=message):
        logit_scaled_confidences(logits, np.array(targets))


CONFIDENCES = np.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize("accuracies", [(None, None), (np.array([0.5, 1.0]), np.array([0.25, 0.75]))])
def test_what_is_saved_is_loaded(tmp_path: Path, accuracies: tuple[np.ndarray | None, np.ndarray | None]) -> None:
    save_outputs(tmp_path / "o.npz", ModelOutputs(CONFIDENCES, *accuracies))
    found = load_outputs(tmp_path / "o.npz")
    assert (found.confidences == CONFIDENCES).all()
    for loaded, saved in zip((found.retain_accuracy, found.test_accuracy), accuracies, strict=True):
        assert (loaded is None) if saved is None else (np.asarray(loaded) == saved).all()


def pickled(path: Path) -> None:
    np.savez(path, confidences=np.array([{}], dtype=object))


def shortened(path: Path) -> None:
    np.savez(path, confidences=CONFIDENCES)
    path.write_bytes(path.read_bytes()[:-30])


def single(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, CONFIDENCES)


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda path: None, "cannot be read as a .npz file of plain arrays"),
        (lambda path: path.write_bytes(b"no archive"), "cannot be read as a .npz file of plain arrays"),
        (shortened, "cannot be read as a .npz file of plain arrays"),
        (pickled, "cannot be read as a .npz file of plain arrays"),
        (single, "holds a single array without a name"),
        (lambda path: np.savez(path, logits=CONFIDENCES), "has no array 'confidences', only ['logits']"),
        (np.savez, "has no array 'confidences', only nothing"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path: Path, write, said: str) -> None:
    path = tmp_path / "o.npz"
    write(path)
    with pytest.raises(InvalidScoreInput) as refused:
        load_outputs(path)
    assert said in str(refused.value)
    assert str(path) in str(refused.value)
