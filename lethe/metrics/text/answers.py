"""How probable right and wrong answers are per token, how they compare (truth ratio), what is memorised and written.

What is memorised is counted of the answer without its last token, which ends it, as in open-unlearning.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Need, Resampling
from lethe.metrics.core.result import MetricResult, mean_over_examples

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


def some_examples(losses: npt.ArrayLike, name: str) -> Float64:
    """Return finite losses of at least one example. Raises InvalidMetricInput if there is none."""
    array = finite_losses(losses, name)
    if array.ndim == 0 or array.shape[-1] == 0:
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


_MAX_EXPONENT = 700.0  # exp() of more overflows


def answer_probabilities(answer_loss: npt.ArrayLike) -> Float64:
    """Return exp(-loss) of every answer. answer_loss: shape (..., n), nats per token."""
    return np.exp(-some_examples(answer_loss, "answer_loss"))


def option_probabilities(answer_loss: npt.ArrayLike, wrong_loss: npt.ArrayLike, *, offset: float = 0.0) -> Float64:
    """Return the right answer's share of the probability of all options, shape (..., n).

    answer_loss: shape (..., n). wrong_loss: shape (..., n, k). offset: added to the denominator; 1e-10 in
    open-unlearning, 0 in TOFU.
    """
    right, wrong = with_options(answer_loss, wrong_loss)
    p, wrong_p = np.exp(-right), np.exp(-wrong)
    if offset:
        return np.asarray(p / (p + wrong_p.sum(axis=-1) + offset), np.float64)
    total = np.concatenate([p[..., None], wrong_p], axis=-1).sum(axis=-1)
    relative_to_right = 1 / (1 + np.exp(np.minimum(right[..., None] - wrong, _MAX_EXPONENT)).sum(axis=-1))
    return np.where(total > 0, p / np.where(total > 0, total, 1), relative_to_right)


def logit_scaled(answer_loss: npt.ArrayLike) -> Float64:
    """Return h = log(p / (1 - p)) of the answer probability p = exp(-loss), shape as given.

    This is the statistic that the epsilon score compares between models, as for the true class of an image. A
    probability of exactly 1 is taken as the largest number below 1, so that h stays finite.
    """
    loss = some_examples(answer_loss, "answer_loss")
    return np.asarray(-loss - np.log(np.maximum(-np.expm1(-loss), np.finfo(np.float64).epsneg)), np.float64)


Mean = Literal["geometric", "arithmetic"]


def truth_ratios(
    answer_loss: npt.ArrayLike, wrong_loss: npt.ArrayLike, *, mean: Mean = "geometric", offset: float = 0.0
) -> Float64:
    """Return the mean probability of the wrong answers over that of the right one, shape (..., n).

    answer_loss: shape (..., n), of the paraphrased answer where there is one. wrong_loss: shape (..., n, k).
    offset: added to the denominator; 1e-10 in open-unlearning, 0 in TOFU.
    """
    right, wrong = with_options(answer_loss, wrong_loss)
    typical = np.exp(-wrong.mean(axis=-1)) if mean == "geometric" else np.exp(-wrong).mean(axis=-1)
    if offset:
        return np.asarray(typical / (np.exp(-right) + offset), np.float64)
    if mean == "geometric":
        return np.asarray(np.exp(np.minimum(right - wrong.mean(axis=-1), _MAX_EXPONENT)), np.float64)
    # of answers without measurable probability, only the difference of the losses is left
    from_losses = np.exp(np.minimum(right[..., None] - wrong, _MAX_EXPONENT)).mean(axis=-1)
    right_p = np.exp(-right)
    return np.asarray(np.where(right_p > 0, typical / np.where(right_p > 0, right_p, 1), from_losses), np.float64)


def closer_to_one(ratios: Float64, *, offset: float = 0.0) -> Float64:
    """Return min(R, 1/R): 1 where the model prefers neither. For forgotten questions."""
    inverse = 1 / (np.maximum(ratios, np.finfo(np.float64).tiny) + offset)
    return np.asarray(np.minimum(ratios, inverse), np.float64)


def truth_preferred(ratios: Float64) -> Float64:
    """Return max(0, 1 - R): 1 where only the right answer has probability. For all other questions."""
    return np.asarray(np.maximum(0.0, 1.0 - ratios), np.float64)


def right_share(answer_loss: npt.ArrayLike, wrong_loss: npt.ArrayLike, *, offset: float = 0.0) -> Float64:
    """Return right / (right + wrong) with the geometric mean of the wrong ones, shape (..., n).

    This is open-unlearning's `prob_mean` before the mean over examples.
    """
    right, wrong = with_options(answer_loss, wrong_loss)
    return option_probabilities(right, wrong.mean(axis=-1, keepdims=True), offset=offset)


def mean_of(values: Callable[..., Float64], **settings: Any) -> Callable[..., MetricResult]:
    """Return the metric that is the mean of these values, shape (n_runs, n_examples), over runs and over examples."""

    @wraps(values)
    def mean_of_values(**arrays: npt.ArrayLike) -> MetricResult:
        return mean_over_examples(values(**arrays, **settings))

    return mean_of_values


def preferences(answer_loss: npt.ArrayLike, wrong_loss: npt.ArrayLike, *, mean: Mean) -> Float64:
    """Return min(R, 1/R) of every answer; 1 if neither the right nor the wrong answers are preferred.

    answer_loss: of the paraphrased answers, shape (n_runs, n_examples). wrong_loss: (n_runs, n_examples, n_wrong).
    mean: over the wrong answers. Raises InvalidMetricInput for shapes that do not fit or a loss that is not finite.
    """
    return closer_to_one(truth_ratios(answer_loss, wrong_loss, mean=mean))


TRUTH_RATIO = Metric(
    id="truth_ratio",
    title="Truth ratio",
    function=mean_of(preferences, mean="arithmetic"),
    needs={"answer_loss": Need("forget_paraphrased_loss"), "wrong_loss": Need("forget_wrong_loss")},
    unit="ratio",
    direction=Direction.TOWARDS_RETRAINED,
    per_example=True,
    bounds=(0.0, 1.0),
    resampling=Resampling.RUNS,
    source="Maini et al. 2024 (2401.06121), equation 1",
    formula="mean_i min(R_i, 1/R_i), R = mean_wrong exp(-loss) / exp(-loss of the paraphrased answer)",
    paper_and_code="Equation 1 and one of the two programs take this mean, the leaderboard the geometric one.",
)
TRUTH_RATIO_GEOMETRIC = replace(
    TRUTH_RATIO,
    id="truth_ratio_geometric",
    title="Truth ratio (geometric mean)",
    function=mean_of(preferences, mean="geometric"),
    formula="mean_i min(R_i, 1/R_i), R = exp(loss of the paraphrased answer - mean loss of the wrong ones)",
    paper_and_code="The leaderboard, forget quality and open-unlearning take this mean; equation 1 the arithmetic one.",
)
TRUTH_RATIO_PROB_MEAN = replace(
    TRUTH_RATIO,
    id="truth_ratio_prob_mean",
    title="Truth ratio (share of the right answer)",
    function=mean_of(right_share),
    unit="share",
    source="open-unlearning (Dorna et al. 2025, 2506.12618)",
    formula="mean_i p / (p + p_wrong), p_wrong the geometric mean over wrong answers",
    paper_and_code="",
)


ANSWER_PROBABILITY = Metric(
    id="answer_probability",
    title="Answer probability",
    function=mean_of(answer_probabilities),
    needs={"answer_loss": Need("forget_answer_loss")},
    unit="probability per token",
    direction=Direction.TOWARDS_RETRAINED,
    per_example=True,
    bounds=(0.0, 1.0),
    resampling=Resampling.RUNS,
    source="Maini et al. 2024 (2401.06121), section 2.2.1",
    formula="mean_i exp(-mean loss of the tokens of answer i)",
    paper_and_code="The text has P(a|q), the table and the program P(a|q)^(1/|a|); the program's is used.",
)


def answer_rouge(rouge_recall: npt.ArrayLike) -> MetricResult:
    """Return the mean ROUGE-L recall of greedily generated answers, in [0, 1].

    rouge_recall: shape (n_runs, n_examples), from `lethe.metrics.text.rouge.rouge_l_recalls`.
    """
    return mean_over_examples(rouge_recall)


ANSWER_ROUGE = replace(
    ANSWER_PROBABILITY,
    id="answer_rouge",
    title="ROUGE-L recall of answers",
    function=answer_rouge,
    needs={"rouge_recall": Need("forget_rouge_recall")},
    unit="share of the answer's words",
    source="Maini et al. 2024 (2401.06121), section 2.2.1; Lin 2004",
    formula="mean_i LCS(answer_i, generated_i) / |answer_i|, words stemmed",
    paper_and_code="",
)


Bool = npt.NDArray[np.bool_]


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


EXACT_MEMORIZATION = Metric(
    id="exact_memorization",
    title="Exact memorisation",
    function=mean_of(exact_memorization_shares),
    needs={"correct": Need("forget_token_correct"), "n_tokens": Need("forget_answer_tokens", Side.SHARED)},
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
    function=mean_of(extraction_strengths),
    source="Carlini et al. 2021, as in open-unlearning (2506.12618)",
    formula="mean_i 1 - min{k: argmax_t = a_t for all t >= k} / |a|, k at most |a| - 1",
)
