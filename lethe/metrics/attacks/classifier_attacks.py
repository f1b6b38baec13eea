"""Attacks that learn from examples of known membership: support vectors, and one threshold for each class."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from lethe.metrics.core.arrays import Bool, Float64, Int64
from lethe.metrics.core.compiled import compiled, in_threads
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Feature, Parameters


class ShadowParameters(Parameters):
    """n_models: the first ones, which are attacked (a fit takes about a second). shadow_rows: used of both sets."""

    n_models: int = Field(8, ge=1)
    shadow_rows: int = Field(5000, ge=2)
    seed: int = Field(0, ge=0)


def svc_member_share(members: npt.NDArray[Any], others: npt.NDArray[Any], targets: npt.NDArray[Any]) -> float:
    """Return the share of targets that a support vector classifier calls members, in [0, 1].

    members, others, targets: features, shape (n,) or (n, n_features), at least one row each.
    Source: Golatkar et al. 2020 (arXiv:2003.02960): C = 3, radial kernel, gamma = 1 / n_features.
    """
    from sklearn.svm import SVC  # noqa: PLC0415  slow to import; this attack alone needs it

    return _share(SVC(C=3, gamma="auto", kernel="rbf"), members, others, targets)


def logistic_member_share(members: npt.NDArray[Any], others: npt.NDArray[Any], targets: npt.NDArray[Any]) -> float:
    """Return the same share by logistic regression with balanced class weights.

    Source: Foster et al. 2024 (arXiv:2308.07707), program, metrics.py.
    """
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415  slow to import; this attack alone needs it

    return _share(LogisticRegression(class_weight="balanced"), members, others, targets)


def _share(classifier: Any, members: npt.NDArray[Any], others: npt.NDArray[Any], targets: npt.NDArray[Any]) -> float:
    rows = np.concatenate((_columns(members), _columns(others)))
    classifier.fit(rows, np.repeat([1.0, 0.0], [len(members), len(others)]))
    return float(classifier.predict(_columns(targets)).mean())


def _columns(features: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    # the published programs have their features in float32; so an example falls on the same side of the boundary
    return np.asarray(features, np.float32).reshape(len(features), -1)


def shadow_part(features: Float64, n_rows: int, *, seed: int) -> Float64:
    """Return at most n_rows rows, drawn at random from the rows in ascending order; so their order does not matter."""
    rows = features.reshape(len(features), -1)
    ordered = rows[np.lexsort(rows.T[::-1])]
    chosen = np.random.default_rng(seed).permutation(len(ordered))[:n_rows]
    return np.asarray(ordered[np.sort(chosen)])


MIN_PROBABILITY = 1e-30  # the logarithm of a smaller probability is that of this one


def confidence(probabilities: Float64, labels: Int64) -> Float64:
    """Return the probability of the label, shape (n_examples,).

    probabilities: shape (n_examples, n_classes). labels: shape (n_examples,), class numbers. So for all below.
    """
    return np.asarray(probabilities[np.arange(labels.size), labels], dtype=np.float64)


def correctness(probabilities: Float64, labels: Int64) -> Float64:
    """Return 1.0 where the label is the likeliest class, else 0.0, shape (n_examples,)."""
    return np.asarray(probabilities.argmax(axis=1) == labels, dtype=np.float64)


def entropy(probabilities: Float64) -> Float64:
    """Return the entropy of each row in nats, shape (n_examples,)."""
    return np.asarray((probabilities * _negative_log(probabilities)).sum(axis=1), dtype=np.float64)


def modified_entropy(probabilities: Float64, labels: Int64) -> Float64:
    """Return -(1 - p_y) log p_y - sum over other classes of p_c log(1 - p_c), in nats, shape (n_examples,).

    Source: Song and Mittal 2021 (arXiv:2003.10595), equation 6.
    """
    rows = np.arange(labels.size)
    complement = 1 - probabilities
    weights, terms = probabilities.copy(), _negative_log(complement)
    weights[rows, labels] = complement[rows, labels]
    terms[rows, labels] = _negative_log(probabilities[rows, labels])
    return np.asarray((weights * terms).sum(axis=1), dtype=np.float64)


def modified_entropy_published(probabilities: Float64, labels: Int64) -> Float64:
    """Return what the program of SalUn computes under that name, shape (n_examples,); it is not modified entropy.

    It exchanges p and 1 - p in the columns of *all* labels that occur, in every row, and takes log p of every class
    where log(1 - p) belongs. So the value of an example depends on the labels of the others.
    Source: Fan et al. 2024 (arXiv:2310.12508), OPTML-Group/Unlearn-Saliency, evaluation/SVC_MIA.py.
    """
    weights = probabilities.copy()
    present = np.unique(labels)
    weights[:, present] = 1 - probabilities[:, present]
    logarithms = np.log(np.where(probabilities > 0, probabilities, MIN_PROBABILITY))  # here only 0 is replaced
    return np.asarray(-(weights * logarithms).sum(axis=1), dtype=np.float64)


def _negative_log(probabilities: Float64) -> Float64:
    return np.asarray(-np.log(np.maximum(probabilities, MIN_PROBABILITY)))


FeatureName = Literal["correctness", "confidence", "entropy", "m_entropy", "m_entropy_published", "prob"]
FEATURES: dict[str, Callable[[Float64, Int64], Float64]] = {
    "correctness": correctness,
    "confidence": confidence,
    "entropy": lambda probabilities, _labels: entropy(probabilities),
    "m_entropy": modified_entropy,
    "m_entropy_published": modified_entropy_published,
    "prob": lambda probabilities, _labels: probabilities,
}
_SETS = ("forget", "test", "retain")


class EfficacyParameters(ShadowParameters):
    """feature: of the predictions; "m_entropy_published" is SalUn's, which is not modified entropy."""

    feature: FeatureName = "confidence"


class ConfidenceParameters(Parameters):
    """max_rows: at most so many retain and so many test examples train an attack. max_models: the first so many runs.

    seed: draws the examples. An attack takes about a second, and every model has its own.
    """

    max_rows: int = Field(5000, ge=2)
    max_models: int = Field(8, ge=1)
    seed: int = Field(0, ge=0)


def efficacies(*arrays: Any, feature: str, n_models: int, shadow_rows: int, seed: int) -> Float64:
    """Return 1 - the share of forget examples called members, by model, shape (at most n_models,), in [0, 1].

    arrays: probabilities of the forget, test and retain sets, shape (n_models, n_examples, n_classes) each, then their
    labels, shape (n_examples,) each. Equally many retain and test examples are used, as in the program.
    """
    sets = list(zip(arrays[:3], arrays[3:], strict=True))
    models = range(min(n_models, len(arrays[0])))
    seen = ([FEATURES[feature](rows[model], labels) for rows, labels in sets] for model in models)
    return _efficacies(seen, n_rows=max(1, shadow_rows // 2), seed=seed)


def confidence_efficacies(*arrays: Float64, max_rows: int, max_models: int, seed: int) -> Float64:
    """Return the same on the probability of the true class, which needs no other: shape (at most max_models,).

    arrays: this probability on the forget, test and retain sets, shape (n_models, n_examples) each.
    """
    models = zip(*(rows[:max_models] for rows in arrays), strict=True)
    return _efficacies(models, n_rows=max_rows, seed=seed)


def _efficacies(models: Iterable[Sequence[Float64]], *, n_rows: int, seed: int) -> Float64:
    """Return the efficacy of every model from the attack's features of its forget, test and retain examples."""

    def efficacy(model: Sequence[Float64]) -> float:
        forget, test, retain = model
        size = min(n_rows, len(retain), len(test))
        members, others = shadow_part(retain, size, seed=seed), shadow_part(test, size, seed=seed)
        return 1.0 - svc_member_share(members, others, forget)

    return np.array(in_threads(efficacy, models), np.float64)


EFFICACY = Feature(
    "svc_efficacy",
    efficacies,
    tuple(f"{part}_probabilities" for part in _SETS),
    tuple(f"{part}_labels" for part in _SETS),
    ("feature", "n_models", "shadow_rows", "seed"),
)
CONFIDENCE_EFFICACY = Feature(
    "svc_confidence_efficacy",
    confidence_efficacies,
    tuple(f"{part}_probability" for part in _SETS),
    parameters=("max_rows", "max_models", "seed"),
)


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


ClasswiseFeature = Literal["confidence", "entropy", "modified_entropy"]
Halves = tuple[Int64, Int64, Int64, Int64]
_VALUES: dict[ClasswiseFeature, Callable[[Float64, Int64], Float64]] = {
    "confidence": confidence,
    "entropy": lambda probabilities, _labels: -entropy(probabilities),
    "modified_entropy": lambda probabilities, labels: -modified_entropy(probabilities, labels),
}


class ClasswiseParameters(Parameters):
    """feature: what is thresholded. repetitions: of random halves. exchanged: two classes whose labels were swapped.

    With `exchanged`, test examples of these classes take the label that the forget set gives to their images.
    """

    feature: ClasswiseFeature = "confidence"
    repetitions: int = Field(20, ge=1)
    exchanged: tuple[int, int] | None = None
    seed: int = Field(0, ge=0)


def classwise_accuracies(
    forget: Float64,
    test: Float64,
    forget_labels: Int64,
    test_labels: Int64,
    *,
    feature: ClasswiseFeature,
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
