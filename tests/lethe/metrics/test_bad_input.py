"""Arrays at fault, through `evaluate`: a sentence that names array, side, model and example, or a defined value."""

import numpy as np
import pytest

from lethe.metrics import Inputs, InvalidMetricInput, Scope, Side, evaluate, metrics
from tests.lethe.metrics import synthetic

EVERY = [entry.id for entry in metrics().values() if entry.scope == Scope.SUBMISSION]
LAST = synthetic.N_FORGET - 1
MODELS = synthetic.N_MODELS


def changed_at(values, where, value):
    """Return a copy with another value at one place."""
    copy = np.array(values)
    copy[where] = value
    return copy


def faulty(fault: str) -> Inputs:
    """Return inputs with one fault, in the unlearned models' arrays or in the split's."""
    sides, split = synthetic.sides(), synthetic.split_arrays() | {"retraining_time_s": np.asarray(9.0)}
    unlearned, labels = sides["unlearned"], split["forget_labels"]
    losses = np.ones((MODELS, synthetic.N_FORGET))
    counts = np.ones((MODELS, 3, synthetic.N_CLASSES, synthetic.N_CLASSES), np.int64)
    uniform = np.full((MODELS, synthetic.N_FORGET, synthetic.N_CLASSES), 1 / synthetic.N_CLASSES)
    of_side = {
        "negative loss": {"forget_loss": changed_at(losses, (7, 2), -0.5)},
        "probabilities": {"forget_probabilities": changed_at(uniform, (7, 3, 0), 0.75)},
        "zero time": {"wall_time_s": np.zeros(MODELS)},
        "no counts": {"confusion": 0 * counts},
        "other examples": {"forget_logits": unlearned["forget_logits"][:, :-1]},
    }
    of_split = {
        "label too large": changed_at(labels, LAST, 4),
        "negative label": changed_at(labels, LAST, -1),
        "label missing": labels[:-1],
        "half a class": labels + 0.5,
    }
    if fault in of_split:
        split["forget_labels"] = of_split[fault]
    unlearned |= of_side.get(fault, {})
    sides["retrained"]["confusion"] = counts
    del sides["oracle"]  # no case is about it, and its metrics would take a third of the time
    return Inputs(**sides, shared=split)


LABELS = "`forget_labels` of unlearned `forget_logits` must"
FAULTS = {
    "negative loss": ("mia_loss", "unlearned `forget_loss` must be 0 or more, not -0.5 at model 7, example 2"),
    "probabilities": ("js_to_retrained", "unlearned `forget_probabilities` of model 7, example 3 sum to 1.5, not to 1"),
    "zero time": ("rte", "unlearned `wall_time_s` must be above 0, not 0.0 at model 0"),
    "no counts": ("targeted_error", "confusion matrices of the forget set, with true labels, count no example"),
    "other examples": ("accuracy_gap", "unlearned `forget_logits` (8, 29, 4) has 29, "),
    "label too large": ("accuracy_gap", f"{LABELS} be within 0..3, not 4 at example 29"),
    "negative label": ("tow", f"{LABELS} be within 0..3, not -1 at example 29"),
    "label missing": ("retdev", "unequal numbers of examples: `forget_labels` (29,) has 29, "),
    "half a class": ("accuracy_gap", f"{LABELS} be whole class numbers, not float64"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_a_sentence_and_stops_no_metric(fault):
    metric_id, sentence = FAULTS[fault]
    found = evaluate(faulty(fault), EVERY)
    assert found[metric_id].result is None
    assert sentence in found[metric_id].not_computed
    assert all(one.not_computed or one.result for one in found.values())


def test_missing_array_is_named_with_its_side():
    for name, one in evaluate(Inputs({}, {}), EVERY).items():
        assert "is missing (capture level" in one.not_computed, name


def test_baseline_equal_to_retraining_closes_no_gap():
    sides = synthetic.sides()
    found = evaluate(synthetic.inputs(original=sides["retrained"]), ["miau", "miau_nan"])
    assert found["miau"].result.value == pytest.approx(100 / (1 + np.exp(13.8 / 2)), abs=1e-3)
    assert np.isnan(found["miau_nan"].result.value)


@pytest.mark.parametrize("metric_id", ["mia_loss", "mia_confidence", "umia"])
def test_constant_losses_tell_nothing_apart(metric_id):
    constant = {
        part: np.ones((MODELS, size)) for part, size in (("forget_loss", 30), ("test_loss", 40), ("retain_loss", 40))
    }
    found = evaluate(Inputs(*[constant] * 4), [metric_id])[metric_id]
    assert found.result.value == 0.5


def test_loss_just_below_zero_by_rounding_is_a_probability_of_one():
    losses = np.zeros((MODELS, 30)) - 1e-9
    inputs = Inputs({"forget_loss": losses})
    assert (inputs.array(Side.UNLEARNED, "forget_probability") == 1.0).all()


def rows(*shape, value=0.5):
    return np.full(shape, value)


REFUSED = {
    "one axis": ("confidences", rows(3), "must have shape (models, examples), not (3,)"),
    "transposed counts": ("confusion", rows(4, 2, 5, 5), "must have shape (N, 3, C, C), not (4, 2, 5, 5)"),
    "no example": ("confidences", rows(3, 0), "have no examples"),
    "words": ("test_accuracy", np.array(["a"]), "must be real numbers"),
    "true and false": ("retain_accuracy", np.array([True]), "must be real numbers, not true and false"),
    "nan": ("confidences", changed_at(rows(3, 4), (2, 1), np.nan), "hold nan at model 2, example 1"),
    "share": ("test_accuracy", np.array([0.5, 1.5]), "must be within [0, 1], not 1.5 at model 1"),
    "negative": ("forget_probability", rows(2, 2, value=-0.5), "must be within [0, 1], not -0.5 at model 0, example 0"),
    "knowledge": ("attacked_knowledge", rows(1, 13, value=2.0), "must be within [0, 1], not 2.0 at model 0, attack 0"),
    "recall": ("forget_rouge_recall", rows(1, 1, value=2.0), "must be within [0, 1]"),
    "one class": ("forget_probabilities", np.ones((2, 3, 1)), "need at least 2 classes, not 1"),
    "sum": (
        "test_probabilities",
        changed_at(rows(2, 3, 2), (1, 2, 0), 0.6),
        "of model 1, example 2 sum to 1.1, not to 1",
    ),
    "epsilon": ("epsilon", np.array([0.0, -1.0]), "must be 0 or more, not -1.0 at example 1"),
    "epochs": ("relearn_epochs", np.array([-1]), "must be 0 or more, not -1 at model 0"),
    "norm": ("weight_norm", np.array([1.0, -1.0]), "must be 0 or more, not -1.0 at model 1"),
    "distance": ("weight_distance", np.array([-1.0]), "must be 0 or more"),
    "half a count": ("confusion", rows(1, 3, 2, 2), "must be whole and 0 or more, not 0.5 at model 0, set 0"),
    "negative count": ("confusion", rows(1, 3, 2, 2, value=-1), "must be whole and 0 or more"),
    "time": ("wall_time_s", np.array([1, 0], np.float16), "must be above 0, not 0.0 at model 1"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_array_that_cannot_be_what_it_is_called_is_refused(fault):
    name, values, sentence = REFUSED[fault]
    with pytest.raises(InvalidMetricInput) as refused:
        Inputs({name: values}).array(Side.UNLEARNED, name)
    assert sentence in str(refused.value)
    assert f"`{name}`" in str(refused.value)


@pytest.mark.parametrize("metric_id", [one for one in EVERY if metrics()[one].fewest_models > 1])
def test_too_few_models_are_counted(metric_id):
    fewest = metrics()[metric_id].fewest_models
    few = synthetic.side_arrays(1, n_models=fewest - 1)
    found = evaluate(synthetic.inputs(retrained=few, oracle={}), [metric_id])[metric_id]
    assert found.not_computed == f"{metric_id} needs at least {fewest} retrained models, not {fewest - 1}"


@pytest.mark.parametrize("metric_id", ["mia_confidence_classwise", "mia_svc"])
def test_labels_of_an_attack_are_class_numbers(metric_id):
    split = synthetic.split_arrays()
    split["test_labels"] = split["test_labels"] + 2
    found = evaluate(Inputs(**synthetic.sides(), shared=split), [metric_id])[metric_id]
    assert "must be within 0..3, not" in found.not_computed
