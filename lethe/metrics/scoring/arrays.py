"""The arrays of this package: types, checks, orders of runs, confidences of logits, models' outputs."""

from dataclasses import dataclass
from typing import Any, NamedTuple

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


def order_of_runs(runs: Float64) -> Int64:
    """Return positions that sort runs by their sorted values, shape (n_models,).

    runs: shape (n_models, n_examples). The order of the examples has no effect either.
    """
    return np.asarray(np.lexsort(np.sort(runs, axis=1).T[::-1]), np.int64)


def drawn_order(runs: Float64, rng: np.random.Generator) -> Int64:
    """Return the positions of all runs in random order, the same for the same set of runs."""
    return order_of_runs(runs)[rng.permutation(len(runs))]


def sorted_values(confidences: Float64) -> Float64:
    """Return the statistic as rows of examples, each ascending: (n_models, n_examples) to (n_examples, n_models)."""
    rows = np.array(confidences.T, order="C")
    rows.sort(axis=1)
    return rows


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


_ZERO_LOG = np.float32(-1e30)


class RateLogs(NamedTuple):
    """Logarithms of every rate k/N, k = 0..N, so that an attack's epsilon is two subtractions and a maximum.

    log_rate: shape (N+1,), log(k/N); +inf at k = 0.
    log_rest: shape (N+1,), log(1 - delta - k/N); -inf at k = 0 and wherever the argument is negative.

    The infinities encode the discard rule: with a count of zero both differences of an attack become -inf. So
    max(log_rest[fp] - log_rate[fn], log_rest[fn] - log_rate[fp]) is -inf exactly for a discarded attack. Perfect
    separation (both counts zero) must be caught before.
    """

    log_rate: Float32
    log_rest: Float32


def rate_logs(n_models: int, *, delta: float) -> RateLogs:
    """Return the logarithms for rates over `n_models` models, each computed in float32 as the program does.

    Source: Triantafillou et al. 2024, algorithm 2; program: float32 means, float32 logarithms.
    """
    counts = np.arange(n_models + 1, dtype=np.float32)
    rate = counts / np.float32(n_models)
    rest = (1 - delta) - rate
    log_rate = np.full(n_models + 1, np.inf, dtype=np.float32)
    log_rate[1:] = np.log(rate[1:])
    log_rest = np.full(n_models + 1, -np.inf, dtype=np.float32)
    log_rest[rest > 0] = np.log(rest[rest > 0])
    log_rest[rest == 0] = _ZERO_LOG  # a kept attack of epsilon 0, not a discarded one
    log_rest[0] = -np.inf
    return RateLogs(log_rate, log_rest)


_TINY = 1e-45


def logit_scaled_confidences(logits: npt.ArrayLike, targets: npt.ArrayLike) -> Float64:
    """Return log(p_y) - log(1 - p_y) of every example, shape (n_examples,), float64, within about +-103.6.

    logits: shape (n_examples, n_classes), float32 or float64 (float16 saturates at a gap of 20 and is refused),
    finite; left unchanged. targets: shape (n_examples,), the true class of each.
    Exponentials are taken in the logits' type and divided in float64, as the published program does.
    Raises InvalidScoreInput, naming the example, for another type, shape, class, or a logit that is not finite.
    Source: Triantafillou et al. 2024, section 3.1.1; Carlini et al. 2022 for the logit scaling.
    """
    values = np.asarray(logits)
    classes = np.asarray(targets)
    _check(values, classes)
    rows = np.arange(values.shape[0])
    shifted = values - values.max(axis=1, keepdims=True)
    probabilities = np.exp(shifted).astype(np.float64)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    correct = probabilities[rows, classes]
    probabilities[rows, classes] = 0.0
    wrong = probabilities.sum(axis=1)
    return np.asarray(np.log(correct + _TINY) - np.log(wrong + _TINY), dtype=np.float64)


def _check(values: npt.NDArray[Any], classes: npt.NDArray[Any]) -> None:
    if values.dtype not in (np.float32, np.float64):
        raise InvalidScoreInput(f"logits must be float32 or float64, not {values.dtype}")
    if values.ndim != 2 or values.shape[1] < 2:
        raise InvalidScoreInput(
            f"logits must have shape (n_examples, n_classes) with n_classes >= 2, not {values.shape}"
        )
    if classes.dtype.kind not in "iu" or classes.shape != values.shape[:1]:
        raise InvalidScoreInput(
            f"targets must be {values.shape[0]} integers, not {classes.dtype} of shape {classes.shape}"
        )
    outside = (classes < 0) | (classes >= values.shape[1])
    if outside.any():
        example = int(np.flatnonzero(outside)[0])
        raise InvalidScoreInput(
            f"target of example {example} is {classes[example]}, not a class in 0..{values.shape[1] - 1}",
            example=example,
        )
    finite = np.isfinite(values).all(axis=1)
    if not finite.all():
        example = int(np.flatnonzero(~finite)[0])
        raise InvalidScoreInput(f"logits of example {example} are not finite", example=example)


@dataclass(frozen=True, eq=False)
class ModelOutputs:
    """What N models of one side gave on one split.

    confidences: shape (n_models, n_examples), the logit-scaled confidence of every forget example.
    retain_accuracy, test_accuracy: shape (n_models,), within [0, 1]; None where not measured.
    """

    confidences: Float64
    retain_accuracy: Float64 | None = None
    test_accuracy: Float64 | None = None

    def __repr__(self) -> str:
        return f"ModelOutputs(confidences {np.shape(self.confidences)})"
