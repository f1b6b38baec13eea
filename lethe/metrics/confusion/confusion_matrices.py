"""Counts read from confusion matrices: confusions between classes, predictions of one class, the most confused pair.

A matrix has shape (..., n_classes, n_classes): rows are true classes, columns predictions.
"""

from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from lethe.metrics.core.arrays import Int64
from lethe.metrics.core.invalid_input import InvalidMetricInput


class ConfusionSet(IntEnum):
    """The second axis of the stored array `confusion`."""

    FORGET_GIVEN_LABELS = 0
    FORGET_TRUE_LABELS = 1
    TEST = 2


def forget_classes(matrices: Int64, classes: Sequence[int] | None) -> tuple[int, ...]:
    """Return the classes under test: those given, else the true classes of the forget set.

    matrices: shape (n_models, 3, n_classes, n_classes). Raises InvalidMetricInput for a class twice or outside the
    range, and without examples.
    """
    n_classes = matrices.shape[-1]
    if classes is None:
        found = np.flatnonzero(matrices[:, ConfusionSet.FORGET_TRUE_LABELS].sum(axis=(0, 2)))
        if not found.size:
            raise InvalidMetricInput("the confusion matrices of the forget set, with true labels, count no example")
        return tuple(int(label) for label in found)
    if len(set(classes)) != len(classes) or not all(0 <= label < n_classes for label in classes) or not classes:
        raise InvalidMetricInput(f"classes must be different numbers within 0..{n_classes - 1}, not {tuple(classes)}")
    return tuple(classes)


def confused_counts(matrices: Int64, classes: Sequence[int] | Int64) -> Int64:
    """Return how many examples of one of the classes were predicted as another of them, shape (...).

    Source: Goel et al. 2022 (arXiv:2201.06640), equation C.2.2; their program, `Conf_Score`.
    """
    block = matrices[..., np.array(classes)[:, None], np.array(classes)]
    return np.asarray(block.sum(axis=(-2, -1)) - np.trace(block, axis1=-2, axis2=-1))
