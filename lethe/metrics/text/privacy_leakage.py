"""How far a membership attack on the forgotten answers is from what it reaches on retrained models."""

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.registry import Direction, Metric, Need, Parameters, Resampling
from lethe.metrics.core.result import MetricResult
from lethe.metrics.text.mia_text import attack_auc, min_k_scores, privacy_leakage_from_auc


class PrivacyLeakageParameters(Parameters):
    """share: of the tokens that the min-k attack looks at, the least likely ones."""

    share: float = 0.4


def privacy_leakage(
    *,
    forget_token_log_probability: npt.ArrayLike,
    holdout_token_log_probability: npt.ArrayLike,
    retrained_forget_token_log_probability: npt.ArrayLike,
    retrained_holdout_token_log_probability: npt.ArrayLike,
    forget_answer_tokens: npt.ArrayLike,
    holdout_answer_tokens: npt.ArrayLike,
    share: float = 0.4,
) -> MetricResult:
    """Return ((1 - AUC) - (1 - AUC_r)) / (1 - AUC_r) of the min-k attack in percent, mean over pairs of runs.

    0 is ideal; below 0 too little is forgotten, above 0 too much. Log probabilities: shape (n_runs, n, L); tokens:
    (n,), with the answer's end. table: both AUCs.
    Source: Shi et al. 2025 (MUSE), section 3.
    """
    forget = np.asarray(forget_token_log_probability)
    retrained = np.asarray(retrained_forget_token_log_probability)
    aucs, references = (
        [
            attack_auc(*pair)
            for pair in zip(
                min_k_scores(own, forget_answer_tokens, share=share),
                min_k_scores(held_out, holdout_answer_tokens, share=share),
                strict=True,
            )
        ]
        for own, held_out in (
            (forget, holdout_token_log_probability),
            (retrained, retrained_holdout_token_log_probability),
        )
    )
    per_run = np.array([privacy_leakage_from_auc(*pair) for pair in zip(aucs, references, strict=True)])
    table = {"auc": float(np.mean(aucs)), "retrained_auc": float(np.mean(references))}
    return MetricResult(float(per_run.mean()), per_run=per_run, table=table)


METRIC = Metric(
    id="privacy_leakage",
    title="Privacy leakage",
    function=privacy_leakage,
    needs={
        "forget_token_log_probability": Need("forget_token_log_probability"),
        "holdout_token_log_probability": Need("holdout_token_log_probability"),
        "retrained_forget_token_log_probability": Need("forget_token_log_probability", Side.RETRAINED),
        "retrained_holdout_token_log_probability": Need("holdout_token_log_probability", Side.RETRAINED),
        "forget_answer_tokens": Need("forget_answer_tokens", Side.SHARED),
        "holdout_answer_tokens": Need("holdout_answer_tokens", Side.SHARED),
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
