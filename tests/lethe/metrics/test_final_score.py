"""Forgetting quality and the final score of the registry: the bits of the scorer."""

import numpy as np
import pytest

from lethe.metrics import Inputs, ModelOutputs, evaluate, score
from tests.lethe.metrics import synthetic

SIDES = ("unlearned", "retrained", "oracle", "original")


def outputs(side: str) -> ModelOutputs:
    arrays = synthetic.sides()[side]
    return ModelOutputs(*(np.resize(arrays[name], (8, *arrays[name].shape[1:])) for name in NAMES))


NAMES = ("confidences", "retain_accuracy", "test_accuracy")


@pytest.mark.parametrize("attacks", ["reference", "exact", "disentangled"])
def test_metrics_have_the_bits_of_the_scorer(attacks):
    parameters = {"attacks": attacks, "delta": 0.01, "cap": 20.0, "n_resamples": 20, "seed": 3}
    found = evaluate(synthetic.inputs(), [("f", parameters), ("score", parameters)])
    for side, field in (("unlearned", "result"), ("oracle", "oracle"), ("original", "original")):
        expected = score(outputs(side), outputs("retrained"), **parameters)
        quality, final = getattr(found["f"], field), getattr(found["score"], field)
        assert (quality.value, quality.interval) == (expected.forgetting_quality, expected.forgetting_quality_interval)
        assert (final.value, final.interval) == (expected.final_score, expected.interval)
        assert quality.per_example.tolist() == final.per_example.tolist() == expected.epsilon.tolist()
        assert final.table == {
            "f": expected.forgetting_quality,
            "retain_ratio": expected.retain_ratio,
            "test_ratio": expected.test_ratio,
        }


def test_seven_models_have_a_score_and_no_interval():
    few = {name: {key: synthetic.sides()[name][key][:7] for key in NAMES} for name in SIDES}
    found = evaluate(Inputs(**few), ["score"])["score"]
    assert found.result is not None
    assert found.result.interval is None


def test_score_without_accuracy_of_the_retrained_models_is_a_sentence():
    found = evaluate(
        synthetic.inputs(retrained=synthetic.sides()["retrained"] | {"test_accuracy": np.zeros(8)}), ["score"]
    )
    assert "every retrained test accuracy is 0" in found["score"].not_computed
