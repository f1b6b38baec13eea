"""A membership attack with one threshold per class, on many models and over repeated random halves."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from lethe.metrics.attacks.svc_efficacy import confidence, entropy, modified_entropy
from lethe.metrics.core.arrays import Bool, Float64, Int64
from lethe.metrics.core.compiled import compiled, in_threads
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Parameters


@dataclass(frozen=True, eq=False)
class Scored:
    """Examples as the attack sees them. values: shape (n,), larger means likelier a member. labels: shape (n,)."""

    values: Float64
    labels: Int64


def attack_accuracy(
    shadow_members: Scored, shadow_others: Scored, members: Scored, others: Scored, *, n_classes: int
) -> tuple[float, float]:
    """Return the balanced accuracy on the shadow examples, and on the target examples, in [0, 1] each.

    A class without shadow examples takes no part: none of its targets counts as recognised.
    Source: Song and Mittal 2021 (arXiv:2003.10595), section 4; their program, `_mem_inf_thre`, as changed by
    Goel et al. 2022.
    """
    thresholds, known, on_shadow = class_thresholds(
        shadow_members.values, shadow_members.labels, shadow_others.values, shadow_others.labels, n_classes
    )
    hits = np.count_nonzero((members.values >= thresholds[members.labels]) & known[members.labels])
    rejections = np.count_nonzero((others.values < thresholds[others.labels]) & known[others.labels])
    return on_shadow, float(0.5 * (hits / members.values.size + rejections / others.values.size))


@compiled
def class_thresholds(
    members: Float64, member_labels: Int64, others: Float64, other_labels: Int64, n_classes: int
) -> tuple[Float64, Bool, float]:
    """Return the threshold of every class, whether it has examples, and the mean balanced accuracy on all of them.

    A threshold is the observed value that separates best when values >= it are called members. The first of equally
    good values wins, members before others. 0, with accuracy 0, if either side of a class is empty, as in the program.
    """
    thresholds, known = np.zeros(n_classes), np.zeros(n_classes, np.bool_)
    total = 0.0
    for label in range(n_classes):
        inside, outside = members[member_labels == label], others[other_labels == label]
        n_examples = inside.size + outside.size
        known[label] = n_examples > 0
        if inside.size == 0 or outside.size == 0:
            continue
        values = np.concatenate((inside, outside))
        above = inside.size - np.searchsorted(np.sort(inside), values)
        below = np.searchsorted(np.sort(outside), values)
        best = 0.0
        for i in range(values.size):
            accuracy = 0.5 * (above[i] / inside.size + below[i] / outside.size)
            if accuracy > best:
                thresholds[label], best = values[i], accuracy
        total += best * n_examples
    return thresholds, known, total / (members.size + others.size)


Feature = Literal["confidence", "entropy", "modified_entropy"]
Halves = tuple[Int64, Int64, Int64, Int64]
_VALUES: dict[Feature, Callable[[Float64, Int64], Float64]] = {
    "confidence": confidence,
    "entropy": lambda probabilities, _labels: -entropy(probabilities),
    "modified_entropy": lambda probabilities, labels: -modified_entropy(probabilities, labels),
}


class ClasswiseParameters(Parameters):
    """feature: what is thresholded. repetitions: of random halves. exchanged: two classes whose labels were swapped.

    With `exchanged`, test examples of these classes take the label that the forget set gives to their images.
    """

    feature: Feature = "confidence"
    repetitions: int = Field(20, ge=1)
    exchanged: tuple[int, int] | None = None
    seed: int = Field(0, ge=0)


def classwise_accuracies(
    forget: Float64,
    test: Float64,
    forget_labels: Int64,
    test_labels: Int64,
    *,
    feature: Feature,
    repetitions: int,
    exchanged: tuple[int, int] | None,
    seed: int,
) -> Float64:
    """Return the attack's accuracy on every model, shape (n_models,), in [0, 1].

    forget, test: probabilities, shape (n_models, n_examples, n_classes). Of the test set only classes of the forget
    set are used; of the larger set a random part. In each repetition one half sets the thresholds, the other is
    attacked. Examples are taken in order of label and value, so that their order does not matter.
    """
    n_classes = forget.shape[2]
    inside, outside = forget_labels, test_labels
    affected = np.isin(_exchange(outside, exchanged), inside)
    if affected.sum() < 2 or inside.size < 2:
        raise InvalidMetricInput(
            f"the attack needs 2 forget and 2 test examples of their classes, not {inside.size} "
            f"and {int(affected.sum())}"
        )
    outside, test = _exchange(outside, exchanged)[affected], test[:, affected]
    values = _VALUES[feature]
    halves = _halves(inside.size, outside.size, repetitions=repetitions, seed=seed)

    def accuracy(model: tuple[Float64, Float64]) -> float:
        members = _ordered(values(model[0], inside), inside)
        others = _ordered(values(model[1], outside), outside)
        return _mean_accuracy(members, others, halves, n_classes=n_classes)

    return np.array(in_threads(accuracy, zip(forget, test, strict=True)))


def _exchange(labels: Int64, pair: tuple[int, int] | None) -> Int64:
    if pair is None:
        return labels
    first, second = pair
    return np.where(labels == first, second, np.where(labels == second, first, labels))


def _ordered(values: Float64, labels: Int64) -> Scored:
    order = np.lexsort((values, labels))
    return Scored(values[order], labels[order])


def _mean_accuracy(forget: Scored, test: Scored, halves: Sequence[Halves], *, n_classes: int) -> float:
    accuracies = []
    for a, b, c, d in halves:
        parts = _part(forget, a), _part(test, c), _part(forget, b), _part(test, d)
        accuracies.append(attack_accuracy(*parts, n_classes=n_classes)[1])
    return float(np.mean(accuracies))


def _halves(n_forget: int, n_test: int, *, repetitions: int, seed: int) -> list[Halves]:
    """Return, per repetition, positions of two halves of the forget set and of two of the test set, of equal sizes."""
    generator = np.random.default_rng(seed)
    n = min(n_forget, n_test)
    drawn = []
    for _ in range(repetitions):
        forget, test = (generator.permutation(size)[:n] for size in (n_forget, n_test))
        drawn.append((forget[: n // 2], forget[n // 2 :], test[: n // 2], test[n // 2 :]))
    return drawn


def _part(examples: Scored, chosen: Int64) -> Scored:
    return Scored(examples.values[chosen], examples.labels[chosen])
