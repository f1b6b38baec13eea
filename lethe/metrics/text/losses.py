"""Checks that every metric of per-token losses makes: a loss must be a number from which a probability follows."""

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.invalid_input import InvalidMetricInput

Float64 = npt.NDArray[np.float64]


def finite_losses(losses: npt.ArrayLike, name: str) -> Float64:
    """Return the losses as float64. Raises InvalidMetricInput naming the first one that is NaN or infinite."""
    array = np.asarray(losses, np.float64)
    wrong = np.argwhere(~np.isfinite(array))
    if wrong.size:
        position = tuple(int(i) for i in wrong[0])
        raise InvalidMetricInput(
            f"`{name}` at {list(position)} is {array[position]}: a loss must be finite; the model gives this answer no "
            f"probability or its outputs overflowed",
            side=name,
        )
    return array


def some_examples(losses: npt.ArrayLike, name: str, axis: int = -1) -> Float64:
    """Return finite losses of at least one example. Raises InvalidMetricInput if there is none."""
    array = finite_losses(losses, name)
    if array.ndim == 0 or array.shape[axis] == 0:
        raise InvalidMetricInput(f"`{name}` holds no example (shape {array.shape})", side=name)
    return array


def with_options(answer_loss: npt.ArrayLike, wrong_loss: npt.ArrayLike) -> tuple[Float64, Float64]:
    """Return the losses of right answers [..., n] and of wrong ones [..., n, k], which must fit together."""
    right, wrong = some_examples(answer_loss, "answer_loss"), finite_losses(wrong_loss, "wrong_loss")
    if wrong.shape[:-1] != right.shape or wrong.shape[-1] == 0:
        raise InvalidMetricInput(
            f"wrong answers have shape {wrong.shape}, right ones {right.shape}: expected {right.shape} and one more "
            f"axis of at least one wrong answer"
        )
    return right, wrong
