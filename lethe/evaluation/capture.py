"""Which arrays of a model are stored beside its confidences, and how they follow from its logits."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from lethe.metrics.core.array_catalogue import CaptureLevel

Logits = NDArray[np.float32]
Labels = NDArray[np.int64]
SUBSET_SEED = 0


@dataclass(frozen=True)
class CapturedSets:
    """Logits [n, classes] and labels [n] of the three sets; true_forget_labels where the given ones were changed."""

    forget: Logits
    retain: Logits
    test: Logits
    forget_labels: Labels
    retain_labels: Labels
    test_labels: Labels
    true_forget_labels: Labels


def capture(levels: Collection[int], sets: CapturedSets) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of one model, by the names of the array catalogue. Retain arrays are of `retain_subset`."""
    arrays: dict[str, NDArray[np.generic]] = {}
    if not levels:
        return arrays
    kept = retain_subset(len(sets.retain), n_forget=len(sets.forget), n_test=len(sets.test))
    retain, retain_labels = sets.retain[kept], sets.retain_labels[kept]
    if CaptureLevel.LOSSES in levels:
        arrays["forget_correct"] = sets.forget.argmax(axis=1) == sets.forget_labels
        arrays["forget_loss"] = cross_entropy(sets.forget, sets.forget_labels)
        arrays["test_loss"] = cross_entropy(sets.test, sets.test_labels)
        arrays["retain_loss"] = cross_entropy(retain, retain_labels)
    if CaptureLevel.LOGITS in levels:
        stored = {"forget_logits": sets.forget, "test_logits": sets.test, "retain_logits": retain}
        arrays |= {name: half_precision(logits) for name, logits in stored.items()}
    if CaptureLevel.CONFUSION in levels:
        arrays["confusion"] = np.stack(
            [
                confusion(sets.forget, sets.forget_labels),
                confusion(sets.forget, sets.true_forget_labels),
                confusion(sets.test, sets.test_labels),
            ]
        )
    return arrays


def stacked(models: Collection[Mapping[str, NDArray[np.generic]]]) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of many models, each with the models along its first axis; only those that all have."""
    if not models:
        return {}
    names = set.intersection(*(set(arrays) for arrays in models))
    return {name: np.stack([arrays[name] for arrays in models]) for name in sorted(names)}


def joined(parts: Collection[Mapping[str, NDArray[np.generic]]]) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of all models of several parts, in order; only those that every part has."""
    if not parts:
        return {}
    names = set.intersection(*(set(arrays) for arrays in parts))
    return {name: np.concatenate([arrays[name] for arrays in parts]) for name in sorted(names)}


def retain_subset(n_retain: int, *, n_forget: int, n_test: int) -> NDArray[np.int64]:
    """Return the positions of the retain examples whose arrays are stored: the same for all models of a split.

    As many as the larger of forget and test set, of a fixed permutation, ascending.
    """
    order = np.random.RandomState(SUBSET_SEED).permutation(n_retain)  # the one generator that numpy never changes
    return np.sort(order[: max(n_forget, n_test)]).astype(np.int64)


def cross_entropy(logits: Logits, labels: Labels) -> NDArray[np.float32]:
    """Return the loss of each example in nats, computed in float64."""
    wide = logits.astype(np.float64)
    losses = logsumexp(wide, axis=1) - wide[np.arange(len(labels)), labels]
    return np.asarray(losses, dtype=np.float32)


def half_precision(logits: Logits) -> NDArray[np.float16]:
    """Return logits as float16; what lies beyond its range becomes its largest number."""
    largest = float(np.finfo(np.float16).max)
    return np.clip(logits, -largest, largest).astype(np.float16)


def confusion(logits: Logits, labels: Labels) -> NDArray[np.int32]:
    """Return counts [label, predicted class]."""
    n_classes = logits.shape[1]
    cells = labels * n_classes + logits.argmax(axis=1)
    return np.bincount(cells, minlength=n_classes**2).reshape(n_classes, n_classes).astype(np.int32)
