"""Evaluation: intervals, parameters, sentences in place of values, comparisons, JSON, lines of text."""

import json

import numpy as np
import pytest

from lethe.metrics import Inputs, InvalidMetricInput, ModelOutputs, UnknownMetric, evaluate, score
from lethe.metrics.comparison import compare
from lethe.metrics.core.metric_text import table_lines
from lethe.metrics.metric_json import comparison_as_json, evaluations_as_json
from lethe.metrics.text.tofu import forget_quality
from tests.lethe.metrics import synthetic


def test_value_lies_in_its_interval():
    found = evaluate(synthetic.inputs(), ["klom", "accuracy_gap", "tow"])
    for evaluation in found.values():
        low, high = evaluation.result.interval
        assert low <= evaluation.result.value <= high


def test_parameters_reach_metric_and_attack():
    inputs = synthetic.inputs()
    found = evaluate(inputs, [("klom", {"bins": 3}), ("mia_loss", {"n_splits": 2})])
    plain = evaluate(inputs, ["klom", "mia_loss"])
    assert found["klom"].parameters.bins == 3
    assert found["klom"].result.value != plain["klom"].result.value
    assert found["mia_loss"].result.value != plain["mia_loss"].result.value


@pytest.mark.parametrize("parameters", [{"bin": 3}, {"bins": 0}, {"bins": "many"}])
def test_wrong_parameter_is_named(parameters):
    with pytest.raises(InvalidMetricInput, match=r"metric klom: parameter `bins?`"):
        evaluate(synthetic.inputs(), [("klom", parameters)])


def test_unknown_metric_stops_the_evaluation():
    with pytest.raises(UnknownMetric):
        evaluate(synthetic.inputs(), ["klom", "no_such_metric"])


def test_fault_of_a_reference_leaves_the_value():
    found = evaluate(Inputs(**{k: v for k, v in synthetic.sides().items() if k != "oracle"}), ["klom"])["klom"]
    assert found.result is not None
    assert found.oracle is None
    assert "no value of the oracle models" in found.reference_notes[0]


def test_metric_of_several_submissions_points_to_compare():
    assert "lethe compare" in evaluate(synthetic.inputs(), ["hardness"])["hardness"].not_computed


def test_original_that_is_the_submission_scores_as_the_original():
    original = synthetic.sides()["original"]
    copies = {name: np.repeat(values, 8, axis=0) for name, values in original.items() if np.shape(values)[0] == 1}
    found = evaluate(synthetic.inputs(unlearned=original | copies), ["klom", "miau", "mia_loss"])
    for evaluation in found.values():
        assert evaluation.result.value == evaluation.original.value


def two_submissions():
    return {"a": synthetic.inputs(), "b": synthetic.inputs(unlearned=synthetic.side_arrays(9, known=4.0))}


def test_comparison_has_values_correlation_and_tests():
    found = compare(two_submissions(), ["klom", "tow", "epsilon_correlation", "hardness", "miau_gradual"])
    assert found.evaluations["b"]["klom"].result.value > found.evaluations["a"]["klom"].result.value
    assert set(found.together) == {"epsilon_correlation", "hardness"}
    assert "cells of a benchmark" in found.not_computed["miau_gradual"]
    assert found.tests["tow"].arrays["p_value"][0, 1] < 0.05


def test_comparison_of_one_submission_is_refused():
    with pytest.raises(InvalidMetricInput, match="at least 2 submissions"):
        compare({"a": synthetic.inputs()}, ["klom"])


def test_comparison_across_splits_is_refused():
    other = synthetic.inputs(retrained=synthetic.side_arrays(11))
    with pytest.raises(InvalidMetricInput, match="a and b have other retrained models"):
        compare({"a": synthetic.inputs(), "b": other}, ["klom"])


def test_json_has_references_and_no_nan():
    text = json.dumps(evaluations_as_json(evaluate(synthetic.inputs(), ["klom", "hardness"])), allow_nan=False)
    stored = json.loads(text)["metrics"]
    assert {"value", "interval", "per_run"} <= set(stored["klom"]["oracle"])
    assert "per_example" not in stored["klom"]["result"]
    assert stored["hardness"]["result"] is None


def test_json_of_examples_and_comparisons():
    found = evaluations_as_json(evaluate(synthetic.inputs(), ["klom"]), examples=True)
    assert len(found["metrics"]["klom"]["result"]["per_example"]) == synthetic.N_FORGET
    together = comparison_as_json(compare(two_submissions(), ["klom", "epsilon_correlation"]))
    assert json.loads(json.dumps(together, allow_nan=False))["together"]["epsilon_correlation"]["arrays"]


def test_numbers_columns_words_and_gaps_are_lines() -> None:
    table = {"joint_auc_share": 0.123456, "models": 16, "worst": "none", "attack": ["a", "b"], "auc": [0.5, None]}
    assert table_lines(table) == ["joint auc share: 0.1235", "models: 16", "worst: none", "attack: a, b", "auc: 0.5, –"]


def test_empty_table_has_no_line() -> None:
    assert table_lines({}) == []


ATTACKS = [
    "mia_loss", "mia_confidence", "mia_entropy", "mia_svc", "umia", "mia_confidence_classwise", "mia_forget_retain",
    "mia_forget_test", "mia_test_retain", "mia_train_test",
]  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_attack_has_its_value_without_retrained_models(attack: str) -> None:
    given = Inputs(synthetic.sides()["unlearned"], shared=synthetic.split_arrays())
    alone = evaluate(given, [attack])[attack]
    beside = evaluate(synthetic.inputs(), [attack])[attack]
    assert alone.result.value == beside.result.value
    assert "no retrained models are given" in alone.result.notes[0]
    assert not beside.result.notes


def test_forget_quality_with_one_retrained_model_compares_every_run_with_it() -> None:
    random = np.random.default_rng(0)
    answers, wrong = random.exponential(size=(4, 12)), random.exponential(size=(4, 12, 3))
    one = forget_quality(answers[:3], wrong[:3], answers[3:], wrong[3:])
    each = [forget_quality(answers[i : i + 1], wrong[i : i + 1], answers[3:], wrong[3:]).value for i in range(3)]
    np.testing.assert_allclose(one.per_run, each)


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
