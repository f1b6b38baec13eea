"""How much of an answer the model reproduces token by token.

Both numbers are of the answer without its last token, which ends it, as in open-unlearning. Given is, per token,
whether the model's most likely token is the answer's."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Need, Resampling
from lethe.metrics.core.result import MetricResult
from lethe.metrics.text.answers import mean_of_examples

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


def exact_memorization(token_correct: npt.ArrayLike, answer_tokens: npt.ArrayLike) -> MetricResult:
    """Return the mean of `exact_memorization_shares` over forgotten answers, in [0, 1].

    token_correct: bool, shape (n_runs, n_examples, L). answer_tokens: shape (n_examples,), with the token that ends
    the answer. Raises InvalidMetricInput for an empty answer, by its number.
    """
    return mean_of_examples(exact_memorization_shares(token_correct, answer_tokens))


def extraction_strength(token_correct: npt.ArrayLike, answer_tokens: npt.ArrayLike) -> MetricResult:
    """Return the mean of `extraction_strengths` over forgotten answers; arguments as for `exact_memorization`."""
    return mean_of_examples(extraction_strengths(token_correct, answer_tokens))


EXACT_MEMORIZATION = Metric(
    title="Exact memorisation",
    function=exact_memorization,
    needs={
        "token_correct": Need("forget_token_correct"),
        "answer_tokens": Need("forget_answer_tokens", Side.SHARED),
    },
    unit="share of tokens",
    direction=Direction.TOWARDS_RETRAINED,
    per_example=True,
    bounds=(0.0, 1.0),
    resampling=Resampling.RUNS,
    source="Tirumala et al. 2022, as in open-unlearning (2506.12618)",
    formula="mean_i |{t: argmax_t = a_t}| / |a|, without the last token",
)
EXTRACTION_STRENGTH = replace(
    EXACT_MEMORIZATION,
    id="extraction_strength",
    title="Extraction strength",
    function=extraction_strength,
    source="Carlini et al. 2021, as in open-unlearning (2506.12618)",
    formula="mean_i 1 - min{k: argmax_t = a_t for all t >= k} / |a|, k at most |a| - 1",
)
