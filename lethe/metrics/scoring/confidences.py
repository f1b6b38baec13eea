"""The statistic of an attack: the logit-scaled confidence of the true class."""

from typing import Any

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.arrays import Float64

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
