"""How much of an answer the model reproduces token by token.

Both numbers are of the answer without its last token, which ends it, as in open-unlearning. Given is, per token,
whether the model's most likely token is the answer's.
"""

import numpy as np
import numpy.typing as npt

from lethe.metrics.invalid_input import InvalidMetricInput

Bool = npt.NDArray[np.bool_]
Float64 = npt.NDArray[np.float64]


def _positions(correct: npt.ArrayLike, n_tokens: npt.ArrayLike) -> tuple[Bool, npt.NDArray[np.int64], Bool]:
    hits, lengths = np.asarray(correct, np.bool_), np.asarray(n_tokens, np.int64) - 1
    if hits.ndim < 2 or lengths.shape != hits.shape[-2:-1] or (lengths > hits.shape[-1]).any():
        raise InvalidMetricInput(
            f"token matrix {hits.shape} and token counts {lengths.shape} do not fit: expected (..., n, L) and (n,) "
            f"with at most L + 1 tokens"
        )
    empty = np.flatnonzero(lengths < 1)
    if empty.size:
        raise InvalidMetricInput(
            f"answer {empty[0]} is empty: it has no token before its end, so nothing of it can be memorised",
            example=int(empty[0]),
        )
    return hits, lengths, np.arange(hits.shape[-1]) < lengths[:, None]


def exact_memorization_shares(correct: npt.ArrayLike, n_tokens: npt.ArrayLike) -> Float64:
    """Return the share of tokens that are the model's first choice, shape (..., n).

    correct: bool, shape (..., n, L). n_tokens: shape (n,), tokens of the answer with its end.
    Source: Tirumala et al. 2022, as in open-unlearning.
    """
    hits, lengths, inside = _positions(correct, n_tokens)
    return np.asarray((hits & inside).sum(axis=-1) / lengths, np.float64)


def extraction_strengths(correct: npt.ArrayLike, n_tokens: npt.ArrayLike) -> Float64:
    """Return 1 - k/length, k the shortest prompt of answer tokens from which the rest follows, shape (..., n).

    Where not even the last token follows, k is length - 1, so the least value is 1/length, not 0.
    Source: Carlini et al. 2021, as in open-unlearning.
    """
    hits, lengths, inside = _positions(correct, n_tokens)
    last_miss = np.where(~hits & inside, np.arange(hits.shape[-1]), -1).max(axis=-1)
    return np.asarray(1 - np.minimum(last_miss + 1, lengths - 1) / lengths, np.float64)
