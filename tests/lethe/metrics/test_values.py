"""Metrics by hand."""

import math

import numpy as np
import pytest

from lethe.metrics import Inputs, InvalidMetricInput, evaluate
from lethe.metrics.accuracy.gaps import average_gap, average_gap_mia
from lethe.metrics.accuracy.trade_offs import aus, mubench_harmonic_mean, tow
from lethe.metrics.benchmark.hard_examples import epsilon_correlation, hardness
from lethe.metrics.core.run_means import gap_of_runs
from lethe.metrics.forgetting.epsilon_histogram import epsilon_histogram
from lethe.metrics.membership.umia import nomus
from lethe.metrics.outputs.histograms import entropy_counts, entropy_histogram, output_histograms
from lethe.metrics.outputs.predictions import activation_l2, js_to_retrained, zrf_per_model, zrf_published_per_model
from lethe.metrics.weights.probes import relearn_time, residual_knowledge

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
        for model, given in enumerate(found):
            np.add.at(counts[name][model, 2], (labels, given), 1)
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
    with pytest.raises(InvalidMetricInput, match="at least 2 classes, not 1"):
        mubench_harmonic_mean(*np.full((3, 1), 0.5), 1)


def test_opposite_predictions_are_farthest_apart():
    p, q = np.array([[[1.0, 0.0]]]), np.array([[[0.0, 1.0]]])
    assert js_to_retrained(p, q).value == 1.0
    assert activation_l2(p, q).value == pytest.approx(math.sqrt(2.0))
    assert zrf_per_model(p, q).tolist() == [0.0]
    assert zrf_published_per_model(p, q).tolist() == [-math.inf]


def test_zrf_of_the_untrained_network_is_one():
    p = np.array([[[0.3, 0.7]]])
    assert zrf_per_model(p, p).tolist() == [1.0]
    assert zrf_published_per_model(p, p).tolist() == [1.0]


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


def test_epsilon_needs_three_models():
    with pytest.raises(InvalidMetricInput, match="at least 3 models"):
        epsilon_histogram(np.zeros(1), 2)


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


def test_relearn_time_notes_censored_models():
    found = relearn_time(np.array([100, 50]), np.array([25, 25]))
    assert found.value == 3.0
    assert found.notes == ("1 unlearned models did not relearn in time",)
    assert math.isnan(relearn_time(np.array([1]), np.array([0])).value)
    with pytest.raises(InvalidMetricInput, match=r"within \[0, 100\], not 101"):
        relearn_time(np.array([5, 101]), np.array([5]))


def test_relearn_time_of_every_run_is_a_ratio_as_the_mean_is():
    found = relearn_time(np.array([10, 30]), np.array([10, 30]))
    assert found.per_run.tolist() == [0.5, 1.5]
    assert found.value == found.per_run.mean()


def test_residual_knowledge_per_radius():
    u = np.array([[[1.0, 1.0], [0.8, 0.4]]])
    r = np.array([[[1.0, 1.0], [0.4, 0.4]]])
    found = residual_knowledge(u, r, np.array([0.0, 0.1]))
    assert found.arrays["ratio"].tolist() == pytest.approx([1.0, 1.5])
    assert found.arrays["residual_share"].tolist() == [0.0, 0.5]
    assert found.value == pytest.approx(1.5)
