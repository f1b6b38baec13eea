"""Arrays that follow from stored ones, so that a metric asks for what it means and not for what was kept.

Every rule lists the arrays of the same side and of the split that it needs; the first rule whose arrays are there is
used. The level of a derived array is that of its cheapest rule.

Probabilities, losses, margins, entropies and divergences are computed in float64, model by model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.array_catalogue import ARRAYS, CaptureLevel
from lethe.metrics.core.arrays import Float64, Int64
from lethe.metrics.core.compiled import compiled, in_threads


def softmax(logits: npt.ArrayLike) -> Float64:
    """Return the probabilities of the last axis, same shape."""
    values = np.asarray(logits)
    result = np.empty(values.shape, np.float64)
    _of_each_model(values, result, _softmax_of_rows)
    return result


def log_margin(logits: npt.ArrayLike, labels: npt.ArrayLike) -> Float64:
    """Return log(p / (1 - p)) of the labels: their output minus the logsumexp of the others, shape (..., n_examples).

    logits: shape (..., n_examples, n_classes). labels: shape (n_examples,), class numbers.
    """
    values = np.asarray(logits)
    classes = np.ascontiguousarray(labels, np.int64)
    result = np.empty(values.shape[:-1], np.float64)
    _of_each_model(values, result, lambda model: _margin_of_rows(model, classes))
    return result


def loss_of_logits(logits: npt.ArrayLike, labels: npt.ArrayLike) -> Float64:
    """Return the cross-entropy of the labels in nats, shape (..., n_examples).

    logits: shape (..., n_examples, n_classes). labels: shape (n_examples,), class numbers.
    """
    return np.asarray(np.logaddexp(0.0, -log_margin(logits, labels)))


def _of_each_model(values: npt.NDArray[Any], result: Float64, function: Callable[[Float64], Float64]) -> None:
    """Write function(outputs) of every model into its place of the result; no copy of all models is made."""

    def compute(part: tuple[int, ...]) -> None:
        result[part] = function(np.ascontiguousarray(values[part], np.float64))

    in_threads(compute, np.ndindex(values.shape[:-2]))


@compiled
def _softmax_of_rows(values: Float64) -> Float64:
    n_rows, n_classes = values.shape
    result = np.empty((n_rows, n_classes), np.float64)
    for row in range(n_rows):
        largest = values[row, 0]
        for c in range(1, n_classes):
            largest = max(largest, values[row, c])
        total = 0.0
        for c in range(n_classes):
            result[row, c] = np.exp(values[row, c] - largest)
            total += result[row, c]
        for c in range(n_classes):
            result[row, c] /= total
    return result


@compiled
def _margin_of_rows(values: Float64, labels: Int64) -> Float64:
    n_rows, n_classes = values.shape
    result = np.empty(n_rows, np.float64)
    for row in range(n_rows):
        label = labels[row]
        largest = -np.inf
        for c in range(n_classes):
            if c != label:
                largest = max(largest, values[row, c])
        total = 0.0
        for c in range(n_classes):
            if c != label:
                total += np.exp(values[row, c] - largest)
        result[row] = values[row, label] - (largest + np.log(total))
    return result


@compiled
def jensen_shannon(first: Float64, second: Float64) -> Float64:
    """Return the divergence of every pair of rows in base 2, shape (n_rows,), in [0, 1].

    first, second: probabilities, shape (n_rows, n_classes) each; 0 log 0 is 0.
    """
    result = np.empty(first.shape[0], np.float64)
    for row in range(first.shape[0]):
        total = 0.0
        for c in range(first.shape[1]):
            p, q = first[row, c], second[row, c]
            middle = 0.5 * (p + q)
            if p > 0.0:
                total += p * np.log2(p / middle)
            if q > 0.0:
                total += q * np.log2(q / middle)
        result[row] = min(max(0.5 * total, 0.0), 1.0)
    return result


@compiled
def row_entropies(probabilities: Float64) -> Float64:
    """Return the entropy of every row in nats, shape (n_rows,); 0 log 0 is 0.

    probabilities: shape (n_rows, n_classes).
    """
    result = np.empty(probabilities.shape[0], np.float64)
    for row in range(probabilities.shape[0]):
        total = 0.0
        for c in range(probabilities.shape[1]):
            p = probabilities[row, c]
            if p > 0.0:
                total -= p * np.log(p)
        result[row] = total
    return result


def entropies(probabilities: Float64) -> Float64:
    """Return the entropy of every row in nats, shape (n_models, n_examples); 0 log 0 is 0.

    probabilities: shape (n_models, n_examples, n_classes).
    """
    return np.stack(in_threads(lambda model: row_entropies(np.ascontiguousarray(model)), probabilities))


@compiled
def mean_divergence(first: Float64, second: Float64, first_entropy: Float64, second_entropy: Float64) -> float:
    """Return the mean over rows of the divergence in base 2, from the entropy of the middle and those of both.

    first, second: probabilities, shape (n_rows, n_classes). The entropies, shape (n_rows,), are of their rows.
    """
    total = 0.0
    for row in range(first.shape[0]):
        entropy = 0.0
        for c in range(first.shape[1]):
            middle = 0.5 * (first[row, c] + second[row, c])
            if middle > 0.0:
                entropy -= middle * np.log(middle)
        total += max(entropy - 0.5 * (first_entropy[row] + second_entropy[row]), 0.0)
    return float(total / first.shape[0] / np.log(2.0))


Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Rule:
    """function: called with the arrays of `needs` in their order."""

    needs: tuple[str, ...]
    function: Callable[..., Array]

    @property
    def level(self) -> CaptureLevel:
        """Return the capture level that stores all that the rule needs."""
        return max(ARRAYS[name].level for name in self.needs)


@dataclass(frozen=True)
class DerivedArray:
    """name: as a metric asks for it. axes: as in the catalogue. rules: cheapest first."""

    name: str
    axes: tuple[str, ...]
    description: str
    rules: tuple[Rule, ...]

    @property
    def shared(self) -> bool:
        """Return whether the array belongs to the split, as all that it follows from does."""
        return all(name in ARRAYS and ARRAYS[name].shared for rule in self.rules for name in rule.needs)

    @property
    def level(self) -> CaptureLevel:
        """Return the lowest capture level from which the array follows."""
        stored = ARRAYS.get(self.name)
        levels = [rule.level for rule in self.rules] + ([stored.level] if stored else [])
        return min(levels)


def _loss_of_confidence(confidences: Array) -> Array:
    return np.logaddexp(0.0, -np.asarray(confidences, np.float64))


def _probability_of_confidence(confidences: Array) -> Array:
    return np.exp(-_loss_of_confidence(confidences))


def _probability_of_loss(loss: Array) -> Array:
    return np.exp(-np.maximum(np.asarray(loss, np.float64), 0.0))  # rounding leaves losses just below 0


def _mean_over_examples(correct: Array) -> Array:
    return np.asarray(np.asarray(correct, np.float64).mean(axis=1))


def _correct(logits: Array, labels: Array) -> Array:
    return np.asarray(np.argmax(logits, axis=-1) == np.asarray(labels))


def _class_accuracy(*, forgotten: bool) -> tuple[tuple[str, Callable[..., Array]], ...]:
    """Return how the accuracy on test examples follows: of the classes in the forget set, or of all others."""

    def of_logits(logits: Array, labels: Array, forget_labels: Array) -> Array:
        chosen = _correct(logits, labels)[:, np.isin(labels, forget_labels) == forgotten]
        return _mean_over_examples(chosen) if chosen.shape[1] else np.full(len(chosen), np.nan)

    def of_confusion(confusion: Array) -> Array:
        counts = np.asarray(confusion)
        chosen = (counts[:, 1].sum(axis=(0, 2)) > 0) == forgotten  # 1: the forget set with its true labels, 2: test
        test = counts[:, 2, chosen].sum(axis=(1, 2))
        right = np.diagonal(counts[:, 2], axis1=1, axis2=2)[:, chosen].sum(axis=1)
        return np.asarray(right / test if test.all() else np.full(len(counts), np.nan))

    return (("test_logits test_labels forget_labels", of_logits), ("confusion", of_confusion))


def _derive(name: str, axes: str, description: str, *rules: tuple[str, Callable[..., Array]]) -> DerivedArray:
    """Return the array of some rules: the names of the arrays that each needs, and the function."""
    return DerivedArray(
        name, tuple(axes.split()), description, tuple(Rule(tuple(needs.split()), function) for needs, function in rules)
    )


def _of_outputs(part: str, size: str, examples: str, place: str) -> tuple[DerivedArray, ...]:
    """Return what follows from the outputs on a set; of forget examples first from the stored confidences."""
    logits, rows = f"{part}_logits {part}_labels", f"N {size}"
    confidences = ("confidences",) if part == "forget" else ()
    return (
        _derive(
            f"{part}_probabilities",
            f"{rows} C",
            f"softmax of the outputs on the {part} set",
            (f"{part}_logits", softmax),
        ),
        _derive(f"{part}_correct", rows, f"whether the {part} example is classified correctly", (logits, _correct)),
        _derive(
            f"{part}_loss",
            rows,
            f"cross-entropy of the {examples}, in nats",
            *((name, _loss_of_confidence) for name in confidences),
            (logits, loss_of_logits),
        ),
        _derive(
            f"{part}_probability",
            rows,
            f"probability of the true class, on {place}",
            *((name, _probability_of_confidence) for name in confidences),
            (f"{part}_loss", _probability_of_loss),
        ),
        _derive(
            f"{part}_margins",
            rows,
            f"log(p / (1 - p)) of the true class, on {place}",
            *((name, np.asarray) for name in confidences),
            (logits, log_margin),
        ),
    )


_TEST_ACCURACY = "accuracy on the test examples of the classes"
_DERIVED = (
    *_of_outputs("forget", "S", "forget examples", "the forget set"),
    *_of_outputs("test", "T", "test examples", "the test set"),
    *_of_outputs("retain", "R", "stored retain examples", "the stored retain examples"),
    _derive(
        "random_forget_probabilities",
        "M S C",
        "softmax of the outputs of randomly initialised networks on the forget set",
        ("random_forget_logits", softmax),
    ),
    _derive(
        "forgotten_classes_test_accuracy",
        "N",
        f"{_TEST_ACCURACY} in the forget set, in [0, 1]",
        *_class_accuracy(forgotten=True),
    ),
    _derive(
        "kept_classes_test_accuracy",
        "N",
        f"{_TEST_ACCURACY} that are not in the forget set, in [0, 1]",
        *_class_accuracy(forgotten=False),
    ),
    _derive("forget_accuracy", "N", "accuracy on the forget set, in [0, 1]", ("forget_correct", _mean_over_examples)),
)

DERIVED: dict[str, DerivedArray] = {array.name: array for array in _DERIVED}
