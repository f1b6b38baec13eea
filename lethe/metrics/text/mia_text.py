"""Membership attacks on answers: forgotten ones against unseen ones."""

import numpy.typing as npt

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.registry import Direction, Metric, Need, Parameters, Resampling
from lethe.metrics.core.result import MetricResult
from lethe.metrics.text.losses import some_examples
from lethe.metrics.text.membership_attacks import min_k_plus_plus_scores, min_k_scores, zlib_scores
from lethe.metrics.text.per_run import mean_auc


def mia_text_loss(
    forget_answer_loss: npt.ArrayLike,
    holdout_answer_loss: npt.ArrayLike,
) -> MetricResult:
    """Return the AUC with which forgotten answers are distinguished from unseen ones; 0.5: not at all, 1: always.

    Of the forgotten and of the held-out answers each:
    answer_loss: shape (n_runs, n), nats per token.
    Raises InvalidMetricInput for values that are not finite.
    Source: Yeom et al. 2018.
    """
    return mean_auc(
        some_examples(forget_answer_loss, "forget_answer_loss"),
        some_examples(holdout_answer_loss, "holdout_answer_loss"),
    )


MIA_TEXT_LOSS = Metric(
    id="mia_text_loss",
    title="Loss attack on answers",
    function=mia_text_loss,
    needs={
        "forget_answer_loss": Need("forget_answer_loss"),
        "holdout_answer_loss": Need("holdout_answer_loss"),
    },
    unit="AUC",
    direction=Direction.TOWARDS_RETRAINED,
    bounds=(0.0, 1.0),
    resampling=Resampling.RUNS,
    source="Yeom et al. 2018",
    formula="AUC of the mean loss of the answer's tokens",
)


def mia_text_zlib(
    forget_answer_loss: npt.ArrayLike,
    forget_compressed_bytes: npt.ArrayLike,
    holdout_answer_loss: npt.ArrayLike,
    holdout_compressed_bytes: npt.ArrayLike,
) -> MetricResult:
    """Return the AUC with which forgotten answers are distinguished from unseen ones; 0.5: not at all, 1: always.

    Of the forgotten and of the held-out answers each:
    answer_loss: shape (n_runs, n), nats per token.
    compressed_bytes: shape (n,).
    Raises InvalidMetricInput for values that are not finite.
    Source: Carlini et al. 2021.
    """
    return mean_auc(
        zlib_scores(forget_answer_loss, forget_compressed_bytes),
        zlib_scores(holdout_answer_loss, holdout_compressed_bytes),
    )


MIA_TEXT_ZLIB = Metric(
    id="mia_text_zlib",
    title="zlib attack on answers",
    function=mia_text_zlib,
    needs={
        "forget_answer_loss": Need("forget_answer_loss"),
        "forget_compressed_bytes": Need("forget_compressed_bytes", Side.SHARED),
        "holdout_answer_loss": Need("holdout_answer_loss"),
        "holdout_compressed_bytes": Need("holdout_compressed_bytes", Side.SHARED),
    },
    unit="AUC",
    direction=Direction.TOWARDS_RETRAINED,
    bounds=(0.0, 1.0),
    resampling=Resampling.RUNS,
    source="Carlini et al. 2021",
    formula="AUC of loss / bytes of the answer after zlib",
)


class MinKParameters(Parameters):
    """share: of the tokens that count, the least likely ones."""

    share: float = 0.2


def mia_text_min_k(
    forget_token_log_probability: npt.ArrayLike,
    forget_answer_tokens: npt.ArrayLike,
    holdout_token_log_probability: npt.ArrayLike,
    holdout_answer_tokens: npt.ArrayLike,
    *,
    share: float = 0.2,
) -> MetricResult:
    """Return the AUC with which forgotten answers are distinguished from unseen ones; 0.5: not at all, 1: always.

    Of the forgotten and of the held-out answers each:
    token_log_probability: shape (n_runs, n, L).
    answer_tokens: shape (n,), with the answer's end.
    Raises InvalidMetricInput for values that are not finite.
    Source: Shi et al. 2024 (2310.16789).
    """
    return mean_auc(
        min_k_scores(forget_token_log_probability, forget_answer_tokens, share=share),
        min_k_scores(holdout_token_log_probability, holdout_answer_tokens, share=share),
    )


MIA_TEXT_MIN_K = Metric(
    id="mia_text_min_k",
    title="Min-k attack on answers",
    function=mia_text_min_k,
    needs={
        "forget_token_log_probability": Need("forget_token_log_probability"),
        "forget_answer_tokens": Need("forget_answer_tokens", Side.SHARED),
        "holdout_token_log_probability": Need("holdout_token_log_probability"),
        "holdout_answer_tokens": Need("holdout_answer_tokens", Side.SHARED),
    },
    unit="AUC",
    direction=Direction.TOWARDS_RETRAINED,
    defaults=MinKParameters,
    bounds=(0.0, 1.0),
    resampling=Resampling.RUNS,
    source="Shi et al. 2024 (2310.16789)",
    formula="AUC of -mean log p of the 20 % least likely tokens",
)


def mia_text_min_k_plus_plus(
    *,
    forget_token_log_probability: npt.ArrayLike,
    forget_token_mean: npt.ArrayLike,
    forget_token_variance: npt.ArrayLike,
    forget_answer_tokens: npt.ArrayLike,
    holdout_token_log_probability: npt.ArrayLike,
    holdout_token_mean: npt.ArrayLike,
    holdout_token_variance: npt.ArrayLike,
    holdout_answer_tokens: npt.ArrayLike,
    share: float = 0.2,
) -> MetricResult:
    """Return the AUC with which forgotten answers are distinguished from unseen ones; 0.5: not at all, 1: always.

    Of the forgotten and of the held-out answers each:
    token_log_probability: shape (n_runs, n, L).
    token_mean: shape (n_runs, n, L).
    token_variance: shape (n_runs, n, L).
    answer_tokens: shape (n,), with the answer's end.
    Raises InvalidMetricInput for values that are not finite.
    Source: Zhang et al. 2025 (2404.02936).
    """
    return mean_auc(
        min_k_plus_plus_scores(
            forget_token_log_probability, forget_token_mean, forget_token_variance, forget_answer_tokens, share=share
        ),
        min_k_plus_plus_scores(
            holdout_token_log_probability,
            holdout_token_mean,
            holdout_token_variance,
            holdout_answer_tokens,
            share=share,
        ),
    )


MIA_TEXT_MIN_K_PLUS_PLUS = Metric(
    id="mia_text_min_k_plus_plus",
    title="Min-k++ attack on answers",
    function=mia_text_min_k_plus_plus,
    needs={
        "forget_token_log_probability": Need("forget_token_log_probability"),
        "forget_token_mean": Need("forget_token_mean"),
        "forget_token_variance": Need("forget_token_variance"),
        "forget_answer_tokens": Need("forget_answer_tokens", Side.SHARED),
        "holdout_token_log_probability": Need("holdout_token_log_probability"),
        "holdout_token_mean": Need("holdout_token_mean"),
        "holdout_token_variance": Need("holdout_token_variance"),
        "holdout_answer_tokens": Need("holdout_answer_tokens", Side.SHARED),
    },
    unit="AUC",
    direction=Direction.TOWARDS_RETRAINED,
    defaults=MinKParameters,
    bounds=(0.0, 1.0),
    resampling=Resampling.RUNS,
    source="Zhang et al. 2025 (2404.02936)",
    formula="AUC of -mean of the 20 % lowest (log p - mean) / sd over the vocabulary",
)
