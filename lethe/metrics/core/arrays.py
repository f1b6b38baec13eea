"""The checks that metrics make on their arrays: shapes, finite values, labels, probabilities, equal sizes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.array_catalogue import Limits
from lethe.metrics.core.invalid_input import InvalidMetricInput

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

SHARE = Limits("within [0, 1]", 0.0, 1.0)
MIN_CLASSES = 2
PROBABILITY_TOLERANCE = 1e-3  # what float16 storage and a sum over 1000 classes leave


def real_array(values: npt.ArrayLike, *, axes: Sequence[str], name: str, side: str | None = None) -> Float64:
    """Return the values as a finite float64 array with these axes.

    Arguments and errors as for `finite_array`.
    """
    return finite_array(values, axes=axes, name=name, side=side).astype(np.float64, copy=False)


def finite_array(values: npt.ArrayLike, *, axes: Sequence[str], name: str, side: str | None = None) -> npt.NDArray[Any]:
    """Return the values as an array of their own type.

    axes: their names, for the message; "models" and "examples" also say which index is reported.
    Raises InvalidMetricInput for another number of axes, an empty axis, values that are no real numbers, NaN or inf.
    """
    array = np.asarray(values)
    called = f"{side} {name}" if side else name
    if array.dtype.kind not in "fiub":
        raise InvalidMetricInput(f"{called} must be real numbers, not {array.dtype}", side=side)
    if array.ndim != len(axes):
        raise InvalidMetricInput(f"{called} must have shape ({', '.join(axes)}), not {array.shape}", side=side)
    for size, axis in zip(array.shape, axes, strict=True):
        if size == 0:
            raise InvalidMetricInput(f"{called} have no {axis}: shape {array.shape}", side=side)
    _require_finite(array, axes=axes, called=called, side=side)
    return array


def _require_finite(array: npt.NDArray[Any], *, axes: Sequence[str], called: str, side: str | None) -> None:
    if np.isfinite(array).all():
        return
    where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
    position = dict(zip(axes, where, strict=True))
    raise InvalidMetricInput(
        f"{called} hold {array[where]} at {_place(position)}; every value must be finite",
        side=side,
        model=position.get("models"),
        example=position.get("examples"),
    )


def shares(values: npt.ArrayLike, *, axes: Sequence[str], name: str, side: str | None = None) -> Float64:
    """Return values checked by `real_array` that lie in [0, 1]. Raises InvalidMetricInput for one that does not."""
    array = real_array(values, axes=axes, name=name, side=side)
    require_within(array, SHARE, axes=axes, name=name, side=side)
    return array


def require_within(
    array: npt.NDArray[Any], limits: Limits, *, axes: Sequence[str], name: str, side: str | None = None
) -> None:
    """Raise InvalidMetricInput, naming model and example, for a value outside the limits."""
    wrong = (array < limits.low) | (array > limits.high) | (limits.whole and array != np.rint(array))
    if not wrong.any():
        return
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    position = dict(zip(axes, where, strict=True))
    raise InvalidMetricInput(
        f"{side} {name} must be {limits.words}, not {array[where]} at {_place(position)}".removeprefix("None "),
        side=side,
        model=position.get("models"),
        example=position.get("examples"),
    )


def require_probabilities(array: npt.NDArray[Any], *, name: str, side: str | None) -> None:
    """Raise InvalidMetricInput for a sum over classes, the last of three axes, away from 1 by more than 0.001."""
    whose = f"{side} {name}".removeprefix("None ")
    if array.shape[2] < MIN_CLASSES:
        raise InvalidMetricInput(f"{whose} need at least {MIN_CLASSES} classes, not {array.shape[2]}", side=side)
    sums = array.sum(axis=2, dtype=np.float64)
    wrong = np.abs(sums - 1.0) > PROBABILITY_TOLERANCE
    if wrong.any():
        model, example = (int(i) for i in np.argwhere(wrong)[0])
        raise InvalidMetricInput(
            f"{whose} of model {model}, example {example} sum to {sums[model, example]:.6g}, not to 1",
            side=side,
            model=model,
            example=example,
        )


def require_no_probabilities(array: npt.NDArray[Any], *, name: str, side: str | None) -> None:
    """Raise InvalidMetricInput for probabilities in the place of a network's outputs."""
    if _are_probabilities(array[0]) and _are_probabilities(array):
        raise InvalidMetricInput(
            f"{side or 'shared'} {name} {array.shape} hold probabilities (each row sums to 1); allowed are the "
            "network's outputs before softmax, or the logarithms of the probabilities",
            side=side,
        )


def _are_probabilities(rows: npt.NDArray[Any]) -> bool:
    if rows.shape[-1] < MIN_CLASSES or rows.min() < 0.0 or rows.max() > 1.0:
        return False
    return bool(np.abs(rows.sum(axis=-1, dtype=np.float64) - 1.0).max() <= PROBABILITY_TOLERANCE)


def class_labels(values: npt.ArrayLike, *, n_examples: int, n_classes: int, name: str) -> Int64:
    """Return class numbers of shape (n_examples,), each within 0..n_classes - 1.

    Raises InvalidMetricInput for another shape, numbers that are not whole, or one outside the range.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "iu":
        raise InvalidMetricInput(f"{name} must be whole class numbers, not {array.dtype}")
    if array.shape != (n_examples,):
        raise InvalidMetricInput(f"{name} must have shape ({n_examples},), one per example, not {array.shape}")
    outside = np.flatnonzero((array < 0) | (array >= n_classes))
    if outside.size:
        example = int(outside[0])
        raise InvalidMetricInput(
            f"{name} must be within 0..{n_classes - 1}, not {array[example]} at example {example}", example=example
        )
    return array.astype(np.int64, copy=False)


def _place(position: dict[str, int]) -> str:
    singular = {"classes": "class", "radii": "radius"}
    named = (f"{singular.get(axis, axis.removesuffix('s'))} {index}" for axis, index in position.items())
    return ", ".join(named) or "its only place"
