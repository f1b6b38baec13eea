"""Min-k attack on answers: told from unseen ones by the mean loss of the least likely tokens."""

import numpy.typing as npt

from lethe.metrics.array_catalogue import Side
from lethe.metrics.registry import Direction, Metric, Need, Parameters, Resampling
from lethe.metrics.result import MetricResult
from lethe.metrics.text.membership_attacks import min_k_scores
from lethe.metrics.text.per_run import mean_auc


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
    """Return the AUC with which forgotten answers are told from unseen ones; 0.5: not at all, 1: always.

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


METRIC = Metric(
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
