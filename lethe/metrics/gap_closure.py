"""Gap closure and the unlearning scores made of it."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lethe.metrics.array_catalogue import Side
from lethe.metrics.arrays import Float64, real_array
from lethe.metrics.invalid_input import InvalidMetricInput

TASKS = ("forget_retain", "forget_test", "test_retain")
ALPHA = 13.8
EQUAL_WEIGHTS = (1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0)


def gap_closure(unlearned: Float64, retrained: Float64, original: Float64) -> Float64:
    """Return f = (|B - R| - |M - R|) / |B - R|, and 0 where B equals R; shape as given.

    unlearned (M), retrained (R), original (B): accuracies of the same attack, run by run.
    Source: the MIAU paper, equation 1.
    """
    gap = np.abs(original - retrained)
    left = gap - np.abs(unlearned - retrained)
    return np.where(gap > 0.0, left / np.where(gap > 0.0, gap, 1.0), 0.0)


def unlearning_score(closure: npt.ArrayLike, *, alpha: float = ALPHA) -> Float64:
    """Return MUS = 100 / (1 + exp(-alpha (f - 1/2))), shape as given.

    Source: the MIAU paper, equation 2; alpha = 2 log 999 rounded down, appendix A.1.
    """
    with np.errstate(over="ignore"):
        return np.asarray(100.0 / (1.0 + np.exp(-alpha * (np.asarray(closure, np.float64) - 0.5))))


def checked_tasks(values: npt.ArrayLike, *, side: Side) -> Float64:
    """Return attack accuracies of shape (n_models, 3), one column per task of `TASKS`, finite."""
    array = real_array(values, axes=("models", "tasks"), name="attack accuracies", side=side)
    if array.shape[1] != len(TASKS):
        raise InvalidMetricInput(
            f"{side} attack accuracies must have {len(TASKS)} columns, {', '.join(TASKS)}, not {array.shape[1]}",
            side=side,
        )
    return array


def checked_weights(weights: Sequence[float]) -> Float64:
    """Return the weights of the tasks, >= 0 and of sum 1; raises InvalidMetricInput otherwise."""
    array = real_array(weights, axes=("tasks",), name="weights")
    if array.size != len(TASKS) or (array < 0.0).any() or abs(array.sum() - 1.0) > 1e-9:
        raise InvalidMetricInput(
            f"weights must be {len(TASKS)} numbers of 0 or more whose sum is 1, not {list(map(float, array))}"
        )
    return array
