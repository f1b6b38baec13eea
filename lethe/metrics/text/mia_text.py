"""Membership attacks on answers: forgotten ones against unseen ones.

A score is the higher, the less the model seems to have seen the answer. Tokens are those of the answer without its end.
Source: Shi et al. 2024 (min-k), Zhang et al. 2025 (min-k++), Carlini et al. 2021 (zlib), as in open-unlearning.
"""

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from lethe.metrics.core.array_catalogue import ARRAYS, Side
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Need, Parameters, Resampling
from lethe.metrics.core.result import MetricResult
from lethe.metrics.text.answers import some_examples

PARTS = ("forget", "holdout")
Float64 = npt.NDArray[np.float64]


def compressed_sizes(texts: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the number of bytes of every text after zlib, shape (n_examples,)."""
    return np.array([len(zlib.compress(text.encode())) for text in texts], np.int64)


def zlib_scores(answer_loss: npt.ArrayLike, sizes: npt.ArrayLike) -> Float64:
    """Return loss per compressed byte, shape (..., n). answer_loss: (..., n). sizes: (n,)."""
    return np.asarray(some_examples(answer_loss, "answer_loss") / np.asarray(sizes), np.float64)


def _lowest_mean(values: Float64, n_tokens: npt.ArrayLike, share: float) -> Float64:
    lengths = np.asarray(n_tokens, np.int64) - 1
    if not 0 < share <= 1:
        raise InvalidMetricInput(f"the share of tokens is {share}; it must be above 0 and at most 1")
    if (lengths < 1).any():
        empty = int(np.flatnonzero(lengths < 1)[0])
        raise InvalidMetricInput(f"answer {empty} is empty: it has no token before its end", example=empty)
    inside = np.arange(values.shape[-1]) < lengths[:, None]
    ascending = np.sort(np.where(inside, values, np.inf), axis=-1)
    kept = np.arange(values.shape[-1]) < np.maximum(1, (lengths * share).astype(np.int64))[:, None]
    return np.asarray(np.where(kept, ascending, 0.0).sum(axis=-1) / kept.sum(axis=-1), np.float64)


def min_k_scores(token_log_probability: npt.ArrayLike, n_tokens: npt.ArrayLike, *, share: float = 0.2) -> Float64:
    """Return minus the mean log probability of the least likely `share` of tokens, shape (..., n).

    token_log_probability: shape (..., n, L). n_tokens: shape (n,), tokens of the answer with its end.
    """
    return -_lowest_mean(np.asarray(token_log_probability, np.float64), n_tokens, share)


def min_k_plus_plus_scores(
    token_log_probability: npt.ArrayLike,
    vocabulary_mean: npt.ArrayLike,
    vocabulary_variance: npt.ArrayLike,
    n_tokens: npt.ArrayLike,
    *,
    share: float = 0.2,
) -> Float64:
    """Return min-k of log probabilities standardised over the vocabulary, shape (..., n).

    vocabulary_mean, vocabulary_variance: of log p under the model's own distribution at the token's position, shape
    (..., n, L). A variance below 1e-6 counts as 1e-6.
    """
    centred = np.asarray(token_log_probability, np.float64) - np.asarray(vocabulary_mean, np.float64)
    spread = np.sqrt(np.maximum(np.asarray(vocabulary_variance, np.float64), 1e-6))
    return -_lowest_mean(centred / spread, n_tokens, share)


def attack_auc(forget_scores: npt.ArrayLike, holdout_scores: npt.ArrayLike) -> float:
    """Return the probability that a held-out answer has the higher score than a forgotten one, ties half.

    1: forgotten answers are recognised as seen; 0.5: not distinguished. Shapes (n,) and (m,).
    """
    forget = some_examples(forget_scores, "forget_scores")
    holdout = some_examples(holdout_scores, "holdout_scores")
    ranks = rankdata(np.concatenate([forget, holdout]))[forget.size :]
    return float((ranks.sum() - holdout.size * (holdout.size + 1) / 2) / (forget.size * holdout.size))


def privacy_leakage_from_auc(auc: float, retrained_auc: float = 0.5) -> float:
    """Return ((1 - auc) - (1 - ref)) / (1 - ref) in percent: 0 ideal, below: under-forgotten, above: over-forgotten.

    Source: Shi et al. 2025 (MUSE), as in open-unlearning, whose 1e-10 in the denominator is kept.
    """
    return ((1 - auc) - (1 - retrained_auc)) / (1 - retrained_auc + 1e-10) * 100


class MinKParameters(Parameters):
    """share: of the tokens that count, the least likely ones."""

    share: float = 0.2


def _attack(
    id: str,
    *arrays: str,
    title: str,
    score: Callable[..., Float64],
    source: str,
    formula: str,
    defaults: type[Parameters] = Parameters,
) -> Metric:
    """Return the metric of an attack. score: takes these arrays of one set, then the parameters by keyword."""
    names = {part: [f"{part}_{array}" for array in arrays] for part in PARTS}

    def mean_auc(**given: Any) -> MetricResult:
        """Return the AUC with which forgotten answers are distinguished from unseen ones, mean over runs.

        0.5: not at all, 1: always. given: the arrays of the catalogue, with the runs first.
        Raises InvalidMetricInput for values that are not finite.
        """
        sides = [[given.pop(name) for name in names[part]] for part in names]
        forget, holdout = (score(*side, **given) for side in sides)
        per_run = np.array([attack_auc(*pair) for pair in zip(forget, holdout, strict=True)], np.float64)
        return MetricResult(float(per_run.mean()), per_run=per_run)

    return Metric(
        id=id,
        title=title,
        function=mean_auc,
        needs={
            name: Need(name, Side.SHARED if ARRAYS[name].shared else Side.UNLEARNED)
            for part in names.values()
            for name in part
        },
        unit="AUC",
        direction=Direction.TOWARDS_RETRAINED,
        defaults=defaults,
        bounds=(0.0, 1.0),
        resampling=Resampling.RUNS,
        source=source,
        formula=formula,
    )


MIA_TEXT_LOSS = _attack(
    "mia_text_loss",
    "answer_loss",
    title="Loss attack on answers",
    score=lambda losses: some_examples(losses, "answer_loss"),
    source="Yeom et al. 2018",
    formula="AUC of the mean loss of the answer's tokens",
)
MIA_TEXT_ZLIB = _attack(
    "mia_text_zlib",
    "answer_loss",
    "compressed_bytes",
    title="zlib attack on answers",
    score=zlib_scores,
    source="Carlini et al. 2021",
    formula="AUC of loss / bytes of the answer after zlib",
)
MIA_TEXT_MIN_K = _attack(
    "mia_text_min_k",
    "token_log_probability",
    "answer_tokens",
    title="Min-k attack on answers",
    score=min_k_scores,
    defaults=MinKParameters,
    source="Shi et al. 2024 (2310.16789)",
    formula="AUC of -mean log p of the 20 % least likely tokens",
)
MIA_TEXT_MIN_K_PLUS_PLUS = _attack(
    "mia_text_min_k_plus_plus",
    "token_log_probability",
    "token_mean",
    "token_variance",
    "answer_tokens",
    title="Min-k++ attack on answers",
    score=min_k_plus_plus_scores,
    defaults=MinKParameters,
    source="Zhang et al. 2025 (2404.02936)",
    formula="AUC of -mean of the 20 % lowest (log p - mean) / sd over the vocabulary",
)


class PrivacyLeakageParameters(Parameters):
    """share: of the tokens that the min-k attack looks at, the least likely ones."""

    share: float = 0.4


def privacy_leakage(
    *, forget_answer_tokens: npt.ArrayLike, holdout_answer_tokens: npt.ArrayLike, share: float = 0.4, **given: Any
) -> MetricResult:
    """Return ((1 - AUC) - (1 - AUC_r)) / (1 - AUC_r) of the min-k attack in percent, mean over pairs of runs.

    0 is ideal; below 0 too little is forgotten, above 0 too much. given: log probabilities of the answers' tokens,
    `forget_token_log_probability` and `holdout_token_log_probability`, and the same of the retrained models with
    `retrained_` before, shape (n_runs, n, L). Numbers of tokens: (n,), with the answer's end. table: both AUCs.
    """
    tokens = {"forget": forget_answer_tokens, "holdout": holdout_answer_tokens}
    aucs, references = (
        [
            attack_auc(*pair)
            for pair in zip(
                *(min_k_scores(given[f"{side}{part}_{_LOG_P}"], tokens[part], share=share) for part in tokens),
                strict=True,
            )
        ]
        for side in ("", "retrained_")
    )
    per_run = np.array([privacy_leakage_from_auc(*pair) for pair in zip(aucs, references, strict=True)])
    table = {"auc": float(np.mean(aucs)), "retrained_auc": float(np.mean(references))}
    return MetricResult(float(per_run.mean()), per_run=per_run, table=table)


_LOG_P = "token_log_probability"
METRIC = Metric(
    title="Privacy leakage",
    function=privacy_leakage,
    needs={
        **{f"{part}_{_LOG_P}": Need(f"{part}_{_LOG_P}") for part in PARTS},
        **{f"retrained_{part}_{_LOG_P}": Need(f"{part}_{_LOG_P}", Side.RETRAINED) for part in PARTS},
        **{f"{part}_answer_tokens": Need(f"{part}_answer_tokens", Side.SHARED) for part in PARTS},
    },
    unit="percent",
    direction=Direction.TOWARDS_RETRAINED,
    defaults=PrivacyLeakageParameters,
    paired=True,
    ideal=0.0,
    resampling=Resampling.RUNS,
    source="Shi et al. 2025 (2407.06460), section 3, as in open-unlearning (2506.12618)",
    formula="100 ((1 - AUC_u) - (1 - AUC_r)) / (1 - AUC_r), AUC of min-k on forgotten and held-out answers",
)
