"""Arrays that follow from stored ones, so that a metric asks for what it means and not for what was kept.

Every rule lists the arrays of the same side and of the split that it needs; the first rule whose arrays are there is
used. The level of a derived array is that of its cheapest rule.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.array_catalogue import ARRAYS, CaptureLevel
from lethe.metrics.core.softmax import log_margin, loss_of_logits, softmax

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


def _class_accuracy(*, forgotten: bool) -> tuple[Rule, ...]:
    """Return how the accuracy on test examples follows: of the classes in the forget set, or of all others."""

    def of_logits(logits: Array, labels: Array, forget_labels: Array) -> Array:
        return _share(_correct(logits, labels)[:, np.isin(labels, forget_labels) == forgotten])

    def of_confusion(confusion: Array) -> Array:
        counts = np.asarray(confusion)
        chosen = (counts[:, 1].sum(axis=(0, 2)) > 0) == forgotten  # 1: the forget set with its true labels, 2: test
        test = counts[:, 2, chosen].sum(axis=(1, 2))
        right = np.diagonal(counts[:, 2], axis1=1, axis2=2)[:, chosen].sum(axis=1)
        return np.asarray(right / test if test.all() else np.full(len(counts), np.nan))

    return (
        Rule(("test_logits", "test_labels", "forget_labels"), of_logits),
        Rule(("confusion",), of_confusion),
    )


def _share(correct: Array) -> Array:
    return _mean_over_examples(correct) if correct.shape[1] else np.full(len(correct), np.nan)


def _derive(name: str, axes: str, description: str, *rules: Rule) -> DerivedArray:
    return DerivedArray(name, tuple(axes.split()), description, rules)


def _of_logits(part: str, size: str) -> tuple[DerivedArray, ...]:
    logits, labels = f"{part}_logits", f"{part}_labels"
    return (
        _derive(
            f"{part}_probabilities",
            f"N {size} C",
            f"softmax of the outputs on the {part} set",
            Rule((logits,), softmax),
        ),
        _derive(
            f"{part}_correct",
            f"N {size}",
            f"whether the {part} example is classified correctly",
            Rule((logits, labels), _correct),
        ),
    )


def _of_true_class(part: str, size: str, *, examples: str, place: str) -> tuple[DerivedArray, ...]:
    logits = (f"{part}_logits", f"{part}_labels")
    return (
        _derive(f"{part}_loss", f"N {size}", f"cross-entropy of {examples}, in nats", Rule(logits, loss_of_logits)),
        _derive(
            f"{part}_probability",
            f"N {size}",
            f"probability of the true class, on {place}",
            Rule((f"{part}_loss",), _probability_of_loss),
        ),
        _derive(
            f"{part}_margins",
            f"N {size}",
            f"log(p / (1 - p)) of the true class, on {place}",
            Rule(logits, log_margin),
        ),
    )


_DERIVED = (
    *_of_logits("forget", "S"),
    *_of_logits("test", "T"),
    *_of_logits("retain", "R"),
    _derive(
        "random_forget_probabilities",
        "M S C",
        "softmax of the outputs of randomly initialised networks on the forget set",
        Rule(("random_forget_logits",), softmax),
    ),
    _derive(
        "forget_loss",
        "N S",
        "cross-entropy of the forget examples, in nats",
        Rule(("confidences",), _loss_of_confidence),
        Rule(("forget_logits", "forget_labels"), loss_of_logits),
    ),
    _derive(
        "forget_probability",
        "N S",
        "probability of the true class, on the forget set",
        Rule(("confidences",), _probability_of_confidence),
        Rule(("forget_loss",), _probability_of_loss),
    ),
    _derive(
        "forget_margins",
        "N S",
        "log(p / (1 - p)) of the true class, on the forget set",
        Rule(("confidences",), np.asarray),
        Rule(("forget_logits", "forget_labels"), log_margin),
    ),
    *_of_true_class("test", "T", examples="the test examples", place="the test set"),
    *_of_true_class("retain", "R", examples="the stored retain examples", place="the stored retain examples"),
    _derive(
        "forgotten_classes_test_accuracy",
        "N",
        "accuracy on the test examples of the classes in the forget set, in [0, 1]",
        *_class_accuracy(forgotten=True),
    ),
    _derive(
        "kept_classes_test_accuracy",
        "N",
        "accuracy on the test examples of the classes that are not in the forget set, in [0, 1]",
        *_class_accuracy(forgotten=False),
    ),
    _derive(
        "forget_accuracy",
        "N",
        "accuracy on the forget set, in [0, 1]",
        Rule(("forget_correct",), _mean_over_examples),
    ),
)

DERIVED: dict[str, DerivedArray] = {array.name: array for array in _DERIVED}
