"""The array types of this package and the checks that every public function makes on them."""

from typing import Any

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.invalid_input import InvalidScoreInput

Float64 = npt.NDArray[np.float64]
Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
Int8 = npt.NDArray[np.int8]
Bool = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]


def checked_confidences(values: npt.ArrayLike, *, side: str) -> Float64:
    """Return the statistic of one side as a float64 array of shape (n_models, n_examples).

    side: the name used in messages, "unlearned" or "retrained".
    Raises InvalidScoreInput, naming model and example, if the array is not two-dimensional, has no example, fewer
    than two models, or holds a value that is not finite.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise InvalidScoreInput(f"{side} confidences must be real numbers, not {array.dtype}", side=side)
    if array.ndim != 2:
        raise InvalidScoreInput(
            f"{side} confidences must have shape (n_models, n_examples), not {array.shape}", side=side
        )
    n_models, n_examples = array.shape
    if n_models < 2:
        raise InvalidScoreInput(f"{side} confidences need at least 2 models, not {n_models}", side=side)
    if n_examples < 1:
        raise InvalidScoreInput(f"{side} confidences need at least 1 forget example, not 0", side=side)
    result = array.astype(np.float64, copy=False)
    _require_finite(result, side=side)
    return result


def checked_pair(unlearned: npt.ArrayLike, retrained: npt.ArrayLike) -> tuple[Float64, Float64]:
    """Return both sides checked, with the same number of models and of examples.

    Shapes: (n_models, n_examples) each. The published program broadcasts one side against the other and so stops at
    unequal shapes; here that is an InvalidScoreInput that states both.
    """
    u = checked_confidences(unlearned, side="unlearned")
    r = checked_confidences(retrained, side="retrained")
    if u.shape[1] != r.shape[1]:
        raise InvalidScoreInput(
            f"both sides must hold the same forget examples: unlearned has {u.shape[1]}, retrained {r.shape[1]}"
        )
    if u.shape[0] != r.shape[0]:
        raise InvalidScoreInput(
            f"both sides must have the same number of models: unlearned has {u.shape[0]}, retrained {r.shape[0]}"
        )
    return u, r


def checked_accuracies(values: npt.ArrayLike, *, side: str, split: str, n_models: int) -> Float64:
    """Return accuracies of shape (n_models,), each within [0, 1].

    Raises InvalidScoreInput, naming the model, for a wrong shape or a value that is not an accuracy.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.shape != (n_models,):
        raise InvalidScoreInput(
            f"{side} {split} accuracies must have shape ({n_models},), not {array.shape}", side=side
        )
    wrong = ~((array >= 0.0) & (array <= 1.0))
    if wrong.any():
        model = int(np.flatnonzero(wrong)[0])
        raise InvalidScoreInput(
            f"{side} {split} accuracy of model {model} is {array[model]}, not within [0, 1]", side=side, model=model
        )
    return array


def checked_epsilon(epsilon: npt.ArrayLike) -> Float64:
    """Return per-example epsilons of shape (n_examples,) in nats, each >= 0 (infinity allowed).

    Raises InvalidScoreInput if there is none, or one is NaN or negative.
    """
    array = np.asarray(epsilon, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise InvalidScoreInput(f"epsilon must have shape (n_examples,) with n_examples >= 1, not {array.shape}")
    wrong = ~(array >= 0.0)
    if wrong.any():
        example = int(np.flatnonzero(wrong)[0])
        raise InvalidScoreInput(f"epsilon of example {example} is {array[example]}, not >= 0", example=example)
    return array


def _require_finite(array: npt.NDArray[Any], *, side: str) -> None:
    finite = np.isfinite(array)
    if finite.all():
        return
    model, example = (int(k) for k in np.argwhere(~finite)[0])
    raise InvalidScoreInput(
        f"{side} confidence of model {model} on example {example} is {array[model, example]}, not finite",
        side=side,
        model=model,
        example=example,
    )
