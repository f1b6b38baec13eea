"""Min-k++ attack on answers: told from unseen ones by the standardised log probability of the least likely tokens."""

import numpy.typing as npt

from lethe.metrics.array_catalogue import Side
from lethe.metrics.registry import Direction, Metric, Need, Parameters, Resampling
from lethe.metrics.result import MetricResult
from lethe.metrics.text.membership_attacks import min_k_plus_plus_scores
from lethe.metrics.text.per_run import mean_auc


class MinKParameters(Parameters):
    """share: of the tokens that count, the least likely ones."""

    share: float = 0.2


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
    """Return the AUC with which forgotten answers are told from unseen ones; 0.5: not at all, 1: always.

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


METRIC = Metric(
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
