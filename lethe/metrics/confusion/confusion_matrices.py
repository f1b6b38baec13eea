"""Counts read from confusion matrices: confusions between classes, predictions of one class, the most confused pair.

A matrix has shape (..., n_classes, n_classes): rows are true classes, columns predictions.
"""

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.arrays import Int64, real_array
from lethe.metrics.core.invalid_input import InvalidMetricInput


class ConfusionSet(IntEnum):
    """The second axis of the stored array `confusion`."""

    FORGET_GIVEN_LABELS = 0
    FORGET_TRUE_LABELS = 1
    TEST = 2


def confusion_matrices(values: npt.ArrayLike, *, side: str) -> Int64:
    """Return the stored matrices, shape (n_models, 3, n_classes, n_classes), int64.

    Raises InvalidMetricInput for another shape, or a count that is negative or not whole.
    """
    axes = ("models", "sets", "classes", "predictions")
    array = real_array(values, axes=axes, name="confusion matrices", side=side)
    if array.shape[1] != len(ConfusionSet) or array.shape[2] != array.shape[3]:
        raise InvalidMetricInput(
            f"{side} confusion matrices must have shape (models, 3, classes, classes), not {array.shape}", side=side
        )
    wrong = (array < 0) | (array != np.rint(array))
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise InvalidMetricInput(
            f"{side} confusion matrices hold {array[where]} at model {where[0]}; counts are whole and >= 0",
            side=side,
            model=where[0],
        )
    return array.astype(np.int64)


def forget_classes(matrices: Int64, classes: Sequence[int] | None) -> tuple[int, ...]:
    """Return the classes under test: those given, else the true classes of the forget set.

    matrices: as `confusion_matrices` returns. Raises InvalidMetricInput for a class twice or outside the range,
    and without examples.
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
