"""Metrics by hand."""

import math
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import binom

from lethe.metrics import Inputs, InvalidMetricInput, evaluate
from lethe.metrics.accuracy.gaps import (
    average_gap,
    average_gap_mia,
    retdev,
    retention,
    sape,
)
from lethe.metrics.accuracy.trade_offs import aus, mubench_harmonic_mean, tow
from lethe.metrics.benchmark.training_choices import (
    deepunlearn_objective,
    epsilon_correlation,
    hardness,
    isolation_cost,
    rte,
)
from lethe.metrics.core.result import gap_of_runs
from lethe.metrics.forgetting.final_score import epsilon_histogram
from lethe.metrics.membership.umia import consistent_unforgettability, hits, nomus
from lethe.metrics.outputs.histograms import entropy_counts, entropy_histogram, output_histograms
from lethe.metrics.outputs.predictions import (
    activation_l1,
    activation_l2,
    disagreement,
    js_to_retrained,
    zrf_per_model,
    zrf_published_per_model,
)

ACCURACIES = {
    "unlearned_forget": np.array([0.9, 0.7]),
    "unlearned_retain": np.array([1.0, 0.9]),
    "unlearned_test": np.array([0.8, 0.8]),
    "retrained_forget": np.array([0.8, 0.6]),
    "retrained_retain": np.array([1.0, 1.0]),
    "retrained_test": np.array([0.8, 0.7]),
}


def test_accuracy_gap_keeps_the_sign():
    found = gap_of_runs(np.array([0.5, 0.7]), np.array([0.8]))
    assert found.value == pytest.approx(0.2)
    assert found.table["difference"] == pytest.approx(-0.2)


def test_average_gap_is_in_percentage_points():
    assert average_gap(**ACCURACIES).value == pytest.approx((10.0 + 5.0 + 5.0) / 3.0)
    assert sape(np.zeros(2), np.zeros(3)).value == 0.0


def test_average_gap_with_attack_has_four_parts():
    found = average_gap_mia(**ACCURACIES, unlearned_mia=np.array([0.5]), retrained_mia=np.array([0.9]))
    assert found.value == pytest.approx((10.0 + 5.0 + 5.0 + 40.0) / 4.0)


def test_tug_of_war_multiplies_per_run():
    assert tow(**ACCURACIES).per_run == pytest.approx([0.9, 0.9 * 0.9 * 0.9])


def test_aus_by_target():
    assert aus(*np.array([[0.5], [0.7], [0.8]])).value == pytest.approx(0.9 / 1.2)
    assert aus(*np.array([[0.5], [0.7], [0.8]]), target="zero").value == pytest.approx(0.9 / 1.5)


def class_removal(*, confusion=False):
    """Two models and test examples of three classes, of which class 1 is removed, as logits or as counts."""
    labels, forget_labels = np.array([0, 0, 1, 1, 2, 2, 2]), np.array([1, 1, 1])
    predictions = {
        "unlearned": [[0, 0, 0, 2, 2, 2, 1], [0, 2, 1, 2, 2, 2, 2]],
        "original": [[0, 0, 1, 1, 2, 2, 1], [0, 0, 1, 1, 2, 1, 2]],
        "perfect": [[0, 0, 0, 2, 2, 2, 1], [0, 0, 2, 2, 2, 1, 2]],
    }
    if not confusion:
        shared = {"test_labels": labels, "forget_labels": forget_labels}
        return {name: {"test_logits": 9 * np.eye(3)[found]} for name, found in predictions.items()}, shared
    counts = {name: np.zeros((2, 3, 3, 3)) for name in predictions}
    for name, found in predictions.items():
        for model, predicted in enumerate(found):
            np.add.at(counts[name][model, 2], (labels, predicted), 1)
            counts[name][model, :2, 1, 0] = 3
    return {name: {"confusion": each} for name, each in counts.items()}, {}


def duck(right, labels, removed):
    """OcraM17/DUCK at 181de8b, src/main_def.py: AUS with mode CR, of one model; see `main` for what it is given."""
    forget_test, retain_test = (right["unlearned"][np.isin(labels, removed) == own].mean() for own in (True, False))
    original_retain_test = right["original"][~np.isin(labels, removed)].mean()
    return (1 - (original_retain_test - retain_test)) / (1 + abs(forget_test))


@pytest.mark.parametrize("confusion", [False, True])
def test_aus_of_a_removed_class_takes_the_inputs_of_its_program(confusion):
    models, shared = class_removal(confusion=confusion)
    accuracies = {"forget_correct": np.ones((2, 3), bool), "test_accuracy": np.array([0.5, 0.5])}
    given = {name: arrays | accuracies for name, arrays in models.items()}
    by_logits, labels = class_removal()[0], np.array([0, 0, 1, 1, 2, 2, 2])
    right = {name: arrays["test_logits"].argmax(-1) == labels for name, arrays in by_logits.items()}
    for subject in ("unlearned", "perfect"):
        inputs = Inputs(given[subject], original=given["original"], shared=shared or None)
        entry = evaluate(inputs, [("aus", {"target": "zero"})])["aus"]
        found = entry.result
        assert found, entry.not_computed
        each = [{"unlearned": right[subject][i], "original": right["original"][i]} for i in range(2)]
        assert found.per_run.tolist() == pytest.approx([duck(one, labels, [1]) for one in each], abs=1e-15)
    assert found.value == 1.0


def test_aus_of_a_removed_class_says_what_is_missing():
    accuracies = {"forget_correct": np.ones((2, 3), bool), "test_accuracy": np.array([0.5, 0.5])}
    found = evaluate(Inputs(accuracies, original=accuracies), [("aus", {"target": "zero"})])["aus"]
    assert "test_logits" in found.not_computed
    models, shared = class_removal()
    shared["forget_labels"] = np.array([0, 1, 2])
    inputs = Inputs(models["unlearned"] | accuracies, original=models["original"] | accuracies, shared=shared)
    assert "classes that are removed" in evaluate(inputs, [("aus", {"target": "zero"})])["aus"].not_computed


def test_nomus_of_a_useless_attack():
    assert nomus(np.array([0.8]), np.array([0.5])).value == pytest.approx(0.9)
    assert nomus(np.array([0.8]), np.array([1.0])).value == pytest.approx(0.4)


def test_harmonic_mean_of_nothing_is_zero():
    assert mubench_harmonic_mean(*np.array([[0.0], [0.5], [1.0]]), 2).value == 0.0


def test_opposite_predictions_are_farthest_apart():
    p, q = np.array([[[1.0, 0.0]]]), np.array([[[0.0, 1.0]]])
    assert js_to_retrained(p, q).value == 1.0
    assert activation_l2(p, q).value == pytest.approx(math.sqrt(2.0))
    assert (activation_l1(p, q).value, disagreement(p, q).value) == (2.0, 1.0)
    assert zrf_per_model(np.concatenate([p, q]), q).tolist() == [0.0, 1.0]
    assert zrf_published_per_model(p, q).tolist() == [-math.inf]
    assert disagreement(np.eye(10)[[[0, 0]]], np.eye(10)[[[9, 0]]]).value == 0.5, "predictions, not class numbers"


def test_entropy_tells_certain_from_uncertain():
    certain, uncertain = np.array([[[1.0, 0.0]]]), np.array([[[0.5, 0.5]]])
    found = entropy_histogram(entropy_counts(certain), entropy_counts(uncertain), 2)
    assert found.value == 1.0
    assert found.table["retrained_mean_entropy"] == pytest.approx(math.log(2.0), abs=1e-3)


def test_epsilon_histogram_counts_the_cap_apart():
    found = epsilon_histogram(np.array([0.0, 0.4, 0.6, 50.0]), 1024)
    assert found.arrays["edges"][-1] == 7.0
    assert found.arrays["counts"].tolist()[:3] == [2, 1, 0]
    assert found.arrays["at_cap"] == 1
    assert found.table["share_above_4"] == 0.25
    assert found.value == 0.5


def test_hardness_counts_the_cap_as_the_clip():
    found = hardness([[50.0, 1.0], [2.0, 1.0]], 1024)
    assert found.per_example.tolist() == [9.0, 2.0]
    assert found.arrays["order"].tolist() == [0, 1]
    assert found.table["largest_possible"] == 14


def test_correlation_leaves_a_constant_method_out():
    rising = np.arange(20.0)
    found = epsilon_correlation([rising, rising**2, np.full(20, 50.0)])
    assert found.value == pytest.approx(1.0)
    assert math.isnan(found.arrays["correlation"][0, 2])
    assert found.arrays["top_decile_overlap"][0, 1] == 1.0
    assert found.arrays["top_decile_overlap"][0, 2] == pytest.approx(0.1), "chance"
    assert "left out" in found.notes[0]


@pytest.mark.parametrize("coefficient", ["spearman", "kendall", "pearson"])
def test_opposite_methods_correlate_negatively(coefficient):
    rising = np.arange(20.0)
    assert epsilon_correlation([rising, 19.0 - rising], coefficient=coefficient).value == pytest.approx(-1.0)


def test_best_threshold_separates_apart_samples():
    found = output_histograms(np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([[5.0, 0.0], [6.0, 1.0]]))
    assert found.per_example.tolist() == [1.0, 0.5]
    widths = np.diff(found.arrays["edges"], axis=1)
    assert (found.arrays["unlearned"] * widths).sum(axis=1) == pytest.approx([1.0, 1.0])


RETENTION_ACCURACIES = arrays(np.float64, st.integers(1, 12), elements=st.floats(0.01, 1))


def six(unlearned, retrained):
    return dict.fromkeys(("retain", "forget", "test"), unlearned) | {
        f"retrained_{part}": retrained for part in ("retain", "forget", "test")
    }


@given(RETENTION_ACCURACIES, RETENTION_ACCURACIES)
def test_retdev_is_never_negative_and_sums_deviations(unlearned, retrained):
    result = retdev(**six(unlearned, retrained))
    assert result.value == pytest.approx(3 * abs(1 - unlearned.mean() / retrained.mean()))


def test_retention_divides_means_not_runs():
    accuracies = six(np.array([0.5, 1.0]), np.array([1.0, 0.5])) | {"forget": np.array([0.25, 0.5])}
    result = retention(**accuracies, part="forget")
    assert result.value == 0.5
    assert result.table == {"retain_retention": 1.0, "forget_retention": 0.5, "test_retention": 1.0}


def test_rte_takes_the_median_run():
    result = rte(np.array([1.0, 2.0, 100.0]), np.array(10.0))
    assert result.value == 5.0
    assert result.per_run.tolist() == [10.0, 5.0, 0.1]


def all_shards_by_the_formula(p: int, n: int) -> float:
    terms = ((-1) ** (j + 1) * comb(p, j) * Fraction(p - j, p) ** n for j in range(1, p + 1))
    return float(1 - sum(terms))


@pytest.mark.parametrize(("n_shards", "n_forgotten"), [(1, 1), (2, 1), (5, 3), (5, 40), (40, 200), (100, 700)])
def test_cost_equals_the_formula_in_exact_arithmetic(n_shards, n_forgotten):
    result = isolation_cost(n_shards, n_forgotten)
    expected = float(n_shards * (1 - (1 - Fraction(1, n_shards)) ** n_forgotten))
    assert result.value == pytest.approx(expected, rel=1e-12)
    assert result.table["all_shards"] == pytest.approx(all_shards_by_the_formula(n_shards, n_forgotten), abs=1e-12)


def losses(seed: int, n_examples: int = 40, scale: float = 1.0) -> np.ndarray:
    return scale * np.random.default_rng(seed).gamma(0.5, 0.5, (4, n_examples))


def test_forget_losses_far_below_the_test_losses_are_all_hit():
    found = hits(losses(1), losses(2, 60) + 30.0)
    assert found.all()
    result = consistent_unforgettability(found, np.zeros((4, 40)))
    assert (result.value, result.table["retrained"], result.table["expected_all"]) == (1.0, 0.0, 0.0)


def test_shares_and_their_expectation():
    u = np.array([[1, 1, 0, 0], [1, 0, 0, 1], [1, 1, 0, 0], [1, 0, 0, 0]], dtype=bool)
    r = np.array([[1, 0, 1, 0]] * 4, dtype=bool)
    result = consistent_unforgettability(u, r)
    assert (result.value, result.table["half"], result.table["retrained"]) == (0.25, 0.5, 0.5)
    assert result.per_example.tolist() == [4, 2, 0, 1]
    assert result.table["expected_all"] == 0.5**4
    assert result.table["expected_half"] == pytest.approx(1 - binom.cdf(1, 4, 0.5))


REFUSED = [
    (lambda: epsilon_histogram(np.zeros(1), 2), "at least 3 models"),
    (lambda: retdev(**six(np.ones(3), np.ones(3)) | {"retrained_forget": np.zeros(3)}), "mean forget accuracy is 0"),
    (lambda: mubench_harmonic_mean(*np.full((3, 1), 0.5), 1), "at least 2 classes, not 1"),
    *((lambda p=p, n=n: isolation_cost(p, n), "at least 1") for p, n in ((0, 1), (3, 0), (-1, 2))),
    *(
        (lambda n=n, k=k: hits(losses(5), losses(6, n), n_folds=k), "as many test as forget examples")
        for n, k in ((30, 10), (60, 1), (60, 41))
    ),
    (lambda: deepunlearn_objective([0.5, 0.5], [0.5, 0.5, 0.5], 0.5), "3, not 2"),
    (lambda: deepunlearn_objective([0.5, 0.5, 1.5], [0.5, 0.5, 0.5], 0.5), "within"),
    (lambda: deepunlearn_objective([0.5, 0.5, 0.5], [0.5, 0.5, 0.5], [0.1, 0.2]), "one number"),
]


@pytest.mark.parametrize(("ask", "message"), REFUSED)
def test_what_has_no_value_is_refused(ask, message):
    with pytest.raises(InvalidMetricInput, match=message):
        ask()


def test_losses_are_weighted_as_published():
    result = deepunlearn_objective([0.9, 0.6, 0.7], [1.0, 0.3, 0.7], 0.75)
    assert result.table["retain"] == pytest.approx(0.1 / 3)
    assert result.table["forget"] == pytest.approx(0.1)
    assert result.table["validation"] == 0.0
    assert result.table["discernibility"] == pytest.approx(0.5)
    assert result.value == pytest.approx(np.sqrt(0.01 / 9 + 0.01 + 0.25))
