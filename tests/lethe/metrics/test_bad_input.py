"""Arrays at fault, through `evaluate`: a sentence that names array, side, model and example, or a defined value."""

import numpy as np
import pytest

from lethe.metrics import Inputs, Scope, Side, evaluate, metrics
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
    "probabilities": ("js_to_retrained", "unlearned probabilities of model 7, example 3 sum to 1.5, not to 1"),
    "zero time": ("rte", "run times must be above 0 s, not 0.0 at model 0"),
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
