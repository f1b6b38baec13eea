"""Evaluation: intervals, parameters, sentences in place of values, comparisons, JSON, lines of text."""

import json
import math

import numpy as np
import pytest

from lethe.metrics import Inputs, InvalidMetricInput, ModelOutputs, evaluate, score
from lethe.metrics.comparison import compare, comparison_as_json
from lethe.metrics.core.metric_evaluation import (
    NORMAL_QUANTILE_95,
    interval_of_models,
    interval_of_runs,
    jackknife_interval,
    kept_models,
)
from lethe.metrics.core.metric_text import evaluations_as_json, table_lines
from lethe.metrics.text.tofu import forget_quality
from tests.lethe.metrics import synthetic


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


def test_fault_of_a_reference_leaves_the_value():
    found = evaluate(Inputs(**{k: v for k, v in synthetic.sides().items() if k != "oracle"}), ["klom"])["klom"]
    assert found.result is not None
    assert found.oracle is None
    assert "no value of the oracle models" in found.reference_notes[0]


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


def test_comparison_across_splits_is_refused():
    other = synthetic.inputs(retrained=synthetic.side_arrays(11))
    with pytest.raises(InvalidMetricInput, match="at least 2 submissions"):
        compare({"a": synthetic.inputs()}, ["klom"])
    with pytest.raises(InvalidMetricInput, match="a and b have other retrained models"):
        compare({"a": synthetic.inputs(), "b": other}, ["klom"])


def test_json_has_references_and_no_nan():
    text = json.dumps(evaluations_as_json(evaluate(synthetic.inputs(), ["klom", "hardness"])), allow_nan=False)
    stored = json.loads(text)["metrics"]
    assert {"value", "interval", "per_run"} <= set(stored["klom"]["oracle"])
    assert "per_example" not in stored["klom"]["result"]
    assert stored["hardness"]["result"] is None
    assert "lethe compare" in stored["hardness"]["not_computed"]


def test_json_of_examples_and_comparisons():
    found = evaluations_as_json(evaluate(synthetic.inputs(), ["klom"]), examples=True)
    assert len(found["metrics"]["klom"]["result"]["per_example"]) == synthetic.N_FORGET
    together = comparison_as_json(compare(two_submissions(), ["klom", "epsilon_correlation"]))
    assert json.loads(json.dumps(together, allow_nan=False))["together"]["epsilon_correlation"]["arrays"]


def test_numbers_columns_words_and_gaps_are_lines() -> None:
    table = {"joint_auc_share": 0.123456, "models": 16, "worst": "none", "attack": ["a", "b"], "auc": [0.5, None]}
    assert table_lines(table) == ["joint auc share: 0.1235", "models: 16", "worst: none", "attack: a, b", "auc: 0.5, –"]
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
    assert one.table["p"] == pytest.approx(10**one.value)
    assert one.table["median_p"] == pytest.approx(np.median([10**value for value in one.per_run]))


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


UNBOUNDED = (-math.inf, math.inf)


def test_half_of_the_models_stay_and_each_side_draws_by_itself():
    kept = list(kept_models(7, n_resamples=50, seed=3))
    assert all(rows.tolist() == sorted(set(rows.tolist())) and len(rows) == 4 for rows in kept)
    assert {row for rows in kept for row in rows.tolist()} == set(range(7))
    same, seed, stream = (
        [rows.tolist() for rows in kept_models(7, n_resamples=50, **given)]
        for given in ({"seed": 3}, {"seed": 4}, {"seed": 3, "stream": 1})
    )
    assert same == [rows.tolist() for rows in kept]
    assert same not in (seed, stream)


@pytest.mark.parametrize(("n_models", "factor"), [(4, 1.0), (5, math.sqrt(3 / 2)), (9, math.sqrt(5 / 4))])
def test_the_interval_is_the_spread_of_three_replicates(n_models, factor):
    low, high = jackknife_interval(1.0, np.array([0.0, 3.0, 6.0]), n_models=n_models)
    reach = 1.959963984540054 * factor * 3.0  # the standard deviation of 0, 3 and 6 with n - 1
    assert (low, high) == pytest.approx((1.0 - reach, 1.0 + reach))


def test_the_interval_is_cut_off_at_the_bounds():
    assert jackknife_interval(0.5, np.array([0.0, 1.0]), n_models=4, bounds=(0.25, 0.75)) == (0.25, 0.75)


def test_half_of_the_replicates_must_have_a_value():
    assert jackknife_interval(1.0, np.array([1.0, 2.0, np.nan, np.nan]), n_models=4) is not None
    assert jackknife_interval(1.0, np.array([1.0, 2.0, np.nan, np.nan, np.nan]), n_models=4) is None
    assert jackknife_interval(1.0, np.array([1.0, np.nan]), n_models=4) is None
    assert jackknife_interval(math.nan, np.array([1.0, 2.0]), n_models=4) is None


def test_a_mean_of_runs_leaves_out_runs_without_a_value():
    values = np.array([1.0, 2.0, np.nan, 4.0, 8.0])
    settings = {"n_resamples": 4000, "seed": 1, "bounds": UNBOUNDED}
    low, high = interval_of_runs(3.75, values, **settings)
    # all six halves of four values are equally likely
    halves = [1.5, 2.5, 4.5, 3.0, 5.0, 6.0]
    assert (high - low) / 2 == pytest.approx(NORMAL_QUANTILE_95 * float(np.std(halves)), rel=0.05)
    assert interval_of_runs(7 / 3, values[:4], **settings) is None


def test_a_metric_of_several_sides_is_computed_on_halves():
    seen = []
    settings = {"n_resamples": 20, "seed": 0, "bounds": UNBOUNDED}

    def metric(kept):
        seen.append([rows.tolist() for rows in kept])
        return float(len(seen))

    low, high = interval_of_models(10.5, metric, sizes=(6, 6), paired=True, **settings)
    assert all(one == other and len(one) == 3 for one, other in seen)
    assert (low + high) / 2 == pytest.approx(10.5)
    assert (high - low) / 2 == pytest.approx(NORMAL_QUANTILE_95 * math.sqrt(35.0))  # of 1, 2, ..., 20
    seen.clear()
    interval_of_models(10.5, metric, sizes=(6, 6), paired=False, **settings)
    assert any(one != other for one, other in seen)
    assert interval_of_models(1.0, metric, sizes=(3, 6), paired=False, **settings) is None
    assert interval_of_models(1.0, metric, sizes=(4, 6), paired=False, **settings) is not None
    assert interval_of_models(1.0, metric, sizes=(), paired=False, **settings) is None


def test_the_smallest_side_sets_the_factor():
    def metric(kept):
        return float(kept[0].sum() % 2)

    intervals = [
        interval_of_models(0.5, metric, sizes=sizes, paired=False, n_resamples=30, seed=0, bounds=UNBOUNDED)
        for sizes in ((4, 5), (4, 4))
    ]
    assert intervals[0] == intervals[1]
