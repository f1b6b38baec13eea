"""Wrong calls of `lethe.evaluate` and `lethe.score`: each is an error, a warning, or a reason in the result."""

import warnings

import numpy as np
import pytest

import lethe
from lethe.metrics.core.derived_arrays import log_margin

N, S, T, C = 16, 6, 8, 3
RANDOM = np.random.default_rng(0)
LABELS = {"forget_labels": np.arange(S) % C, "test_labels": np.arange(T) % C, "retain_labels": np.arange(T) % C}


def side(seed: int, n: int = N) -> dict:
    """Return small arrays of one side."""
    random = np.random.default_rng(seed)
    logits = random.normal(scale=2.0, size=(n, S, C))
    logits[:, np.arange(S), LABELS["forget_labels"]] += 2.0
    return {
        "confidences": log_margin(logits, LABELS["forget_labels"]),
        "retain_accuracy": random.uniform(0.8, 1.0, n),
        "test_accuracy": random.uniform(0.6, 0.9, n),
        "forget_logits": logits,
        "test_logits": random.normal(size=(n, T, C)),
        "retain_logits": random.normal(size=(n, T, C)),
    }


def given(where: str = "unlearned", *, drop: tuple = (), metrics=("klom",), **changed) -> dict:
    """Return the arguments of a call, with arrays of one side or of the split replaced."""
    call = {"unlearned": side(1), "retrained": side(2), "oracle": side(3), "shared": dict(LABELS), "metrics": metrics}
    call[where] = {name: values for name, values in (call[where] | changed).items() if name not in drop}
    return call


def softmax(logits):
    shares = np.exp(logits)
    return shares / shares.sum(axis=-1, keepdims=True)


def nan_at(values, *where, value=np.nan):
    copy = np.array(values, dtype=float)
    copy[where] = value
    return copy


U, R = side(1), side(2)
OTHER_LABELS = (LABELS["forget_labels"] + 1) % C
P = softmax(U["forget_logits"])
GAP = ("accuracy_gap",)
SCORE = ("score",)
WRONG = {
    # models
    "5 confidences, 16 accuracies": given(confidences=U["confidences"][:5]),
    "16 confidences, 5 accuracies": given(retain_accuracy=U["retain_accuracy"][:5]),
    "5 logits": given(forget_logits=U["forget_logits"][:5], metrics=GAP),
    "5 test logits of retrained": given("retrained", test_logits=R["test_logits"][:5], metrics=("klom_test",)),
    "5 unlearned, 16 retrained": {**given(), "unlearned": side(1, 5)},
    "16 unlearned, 5 retrained": {**given(), "retrained": side(2, 5)},
    "3 originals": {**given(), "original": side(4, 3)},
    "one unlearned model": {**given(), "unlearned": side(1, 1)},
    "one model a side": {**given(), "unlearned": side(1, 1), "retrained": side(2, 1), "oracle": side(3, 1)},
    "two models a side": {**given(), "unlearned": side(1, 2), "retrained": side(2, 2), "oracle": side(3, 2)},
    "stated number of models": given("shared", n_models=np.asarray(512)),
    # examples
    "5 examples of unlearned": given(confidences=U["confidences"][:, :5]),
    "5 examples of retrained": given("retrained", confidences=R["confidences"][:, :5]),
    "5 examples of the oracle": given("oracle", confidences=side(3)["confidences"][:, :5]),
    "transposed": given(confidences=U["confidences"].T),
    "7 test examples": given(test_logits=U["test_logits"][:, :7], metrics=("klom_test",)),
    "5 forget labels": given("shared", forget_labels=LABELS["forget_labels"][:5], metrics=GAP),
    "9 retain labels": given("shared", retain_labels=np.zeros(9, int), metrics=("klom_retain",)),
    "epsilon of 5": given(epsilon=np.ones(5), metrics=("epsilon_histogram",)),
    "losses of 5": given(forget_loss=np.ones((N, 5)), metrics=("mia_loss",)),
    "no example": given(confidences=np.zeros((N, 0))),
    "no model": given(confidences=np.zeros((0, S))),
    # axes
    "one axis": given(confidences=U["confidences"][0]),
    "three axes": given(confidences=U["confidences"][None]),
    "logits without models": given(forget_logits=U["forget_logits"][0], metrics=GAP),
    "accuracies with two axes": given(retain_accuracy=np.ones((N, 1)), metrics=SCORE),
    "labels with two axes": given("shared", forget_labels=np.eye(S, C, dtype=int), metrics=GAP),
    "a number": given(confidences=3.0),
    # classes
    "other classes": given(
        forget_logits=np.concatenate([U["forget_logits"]] * 2, axis=2), metrics=("js_to_retrained",)
    ),
    "stated number of classes": given("shared", n_classes=np.asarray(10)),
    "labels as floats": given("shared", forget_labels=LABELS["forget_labels"] + 0.5, metrics=GAP),
    "labels as words": given("shared", forget_labels=np.array(list("abcabc")), metrics=GAP),
    # labels of several places
    "labels of both sides differ": {
        **given(metrics=GAP),
        "unlearned": U | {"forget_labels": OTHER_LABELS},
        "retrained": R | {"forget_labels": LABELS["forget_labels"]},
        "shared": None,
    },
    "labels of side and split differ": given(forget_labels=OTHER_LABELS, metrics=GAP),
    "labels of other shapes": given(forget_labels=np.zeros(9, int), metrics=GAP),
    "test labels differ": given("retrained", test_labels=LABELS["test_labels"][::-1].copy(), metrics=("klom_test",)),
    # values
    "NaN confidence": given(confidences=nan_at(U["confidences"], 3, 2)),
    "infinite confidence": given(confidences=nan_at(U["confidences"], 3, 2, value=np.inf)),
    "NaN of retrained": given("retrained", confidences=nan_at(R["confidences"], 0, 0)),
    "NaN of the oracle": given("oracle", confidences=nan_at(side(3)["confidences"], 0, 0)),
    "NaN logit": given(forget_logits=nan_at(U["forget_logits"], 1, 1, 1), metrics=GAP),
    "negative loss": given(forget_loss=np.full((N, S), -0.5), metrics=("mia_loss",)),
    "complex": given(confidences=U["confidences"] + 0j),
    "words": given(confidences=np.full((N, S), "high")),
    "objects": given(confidences=np.full((N, S), None)),
    "dates": given(confidences=np.zeros((N, S), "M8[s]")),
    # another scale
    "probabilities as confidences": given(confidences=1 / (1 + np.exp(-U["confidences"]))),
    "probabilities on both sides": {
        **given(),
        **{name: {"confidences": RANDOM.uniform(size=(N, S))} for name in ("unlearned", "retrained", "oracle")},
    },
    "percentages as confidences": given(confidences=RANDOM.uniform(40, 100, (N, S))),
    "log-probabilities as confidences": given(confidences=-np.exp(RANDOM.normal(-6, 3, (N, S)))),
    "ten times the logits": given(confidences=100 * U["confidences"]),
    "softmax as logits": given(forget_logits=P, metrics=GAP),
    "softmax as test logits": given("retrained", test_logits=softmax(R["test_logits"]), metrics=("klom_test",)),
    "negative accuracy": given(test_accuracy=np.full(N, -0.1), metrics=("retdev",)),
    # what is asked for
    "unknown metric": given(metrics=("klomm",)),
    "unknown parameter": given(metrics=(("klom", {"bin": 10}),)),
    "parameter out of range": given(metrics=(("klom", {"bins": 0}),)),
    "arrays that are missing": given(drop=("retain_accuracy",), metrics=("retdev", "tow")),
    "no retrained models": {**given(), "retrained": None},
    "nothing known": {"unlearned": {"outputs": U["confidences"]}, "retrained": {"outputs": R["confidences"]}},
    "a state_dict": {"unlearned": {"layer.weight": np.zeros((3, 3))}, "retrained": R},
    "a folder without a split": {"unlearned": "models/", "retrained": R},
    "a metric of benchmarks": given(metrics=("paired_t",)),
}


@pytest.mark.parametrize("call", WRONG)
def test_wrong_call_is_not_silent(call: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    assert said_of(WRONG[call]), f"{call}: nothing was said"


def said_of(arguments: dict) -> list[str]:
    """Return the error, the warnings and the reasons that a call gives."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = lethe.evaluate(**arguments, seed=1)
        except (lethe.metrics.InvalidMetricInput, ValueError) as error:
            return [str(error)]
    said = [str(one.message) for one in caught if issubclass(one.category, UserWarning)]
    for one in found.values():
        said += [one.not_computed] if one.result is None else []
        said += [note for note in one.reference_notes if "oracle" in note]
    return said


def test_right_call_says_nothing() -> None:
    assert said_of(given(metrics=("klom", "klom_test", "f", "score", *GAP))) == []


@pytest.mark.parametrize(
    ("call", "said"),
    {
        "labels of both sides differ": "of the unlearned arrays and of the retrained arrays differ",
        "5 confidences, 16 accuracies": "unlearned `confidences` (5, 6) has 5, unlearned `retain_",
        "softmax as logits": "unlearned `forget_logits` (16, 6, 3) hold probabilities",
        "one model a side": "needs at least 2 unlearned models, not 1",
        "5 unlearned, 16 retrained": "5 unlearned and 16 retrained models",
        "a state_dict": "look like one state_dict",
    }.items(),
)
def test_message_names_array_and_shapes(call: str, said: str) -> None:
    assert any(said in text for text in said_of(WRONG[call])), said_of(WRONG[call])


def test_same_metric_with_other_parameters_has_two_entries() -> None:
    found = lethe.evaluate(**given(metrics=["klom", ("klom", {"bins": 10}), "klom"]))
    assert list(found) == ["klom", "klom:bins=10"]
    assert found["klom"].result.value != found["klom:bins=10"].result.value


def test_value_that_json_cannot_hold_has_a_note() -> None:
    constant = {"confidences": np.zeros((N, S))}
    found = lethe.metrics.evaluate(lethe.metrics.Inputs(constant, constant), ["klom", "f"])
    for one in found.values():
        assert one.result is None or np.isfinite(one.result.value) or one.result.notes


LOGITS = U["forget_logits"]
BOTH = {"oracle": R | {"confidences": np.vstack([R["confidences"][:3], side(3)["confidences"][3:]])}}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (given("shared", forget_labels=LABELS["forget_labels"] + 1), "`forget_labels` must be within 0..2, not 3"),
        (given("shared", forget_labels=LABELS["forget_labels"] - 1), "`forget_labels` must be within 0..2, not -1"),
        (given("shared", forget_labels=LABELS["forget_labels"].astype(float)), "whole class numbers, not float"),
        (given("shared", forget_labels=np.eye(C)[LABELS["forget_labels"]]), "must have shape (examples)"),
        (given(retain_accuracy=100 * U["retain_accuracy"]), "`retain_accuracy` must be within [0, 1], not"),
        (given("retrained", test_accuracy=100 * U["test_accuracy"]), "`test_accuracy` must be within [0, 1], not"),
        (given(confidences=U["confidences"] > 0), "unlearned `confidences` must be real numbers, not true and false"),
        (given(confidences=np.ma.masked_less(U["confidences"], 0)), "unlearned `confidences` has masked values"),
    ],
)
def test_arrays_that_no_metric_may_read_are_refused_whichever_is_asked_for(call: dict, said: str) -> None:
    with pytest.raises(lethe.metrics.InvalidMetricInput) as refused:
        lethe.evaluate(**call)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (given(confidance=U["confidences"]), "`confidance` of the unlearned models; did you mean `conf"),
        (given("shared", forget_label=LABELS["forget_labels"]), "no metric reads `forget_label` of the split; did"),
        (given(drop=("forget_logits",), confidences=np.logaddexp(0, -U["confidences"])), "look like losses, -log"),
        (given(forget_logits=LOGITS[::-1].copy()), "`confidences` are not those of `forget_logits`"),
        (given("retrained", confidences=U["confidences"], drop=("forget_logits",)), "16 unlearned models are among"),
        ({**given(), **BOTH}, "3 oracle models are among the retrained ones"),
        (given(drop=("forget_logits",), confidences=np.tile(U["confidences"][:2], (8, 1))), "14 of 16 unlearned"),
    ],
)
def test_arrays_that_are_hardly_meant_are_said(call: dict, said: str) -> None:
    assert any(said in text for text in said_of(call)), said_of(call)
