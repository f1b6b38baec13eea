"""zlib attack on answers: told from unseen ones by the loss per compressed byte."""

import numpy.typing as npt

from lethe.metrics.array_catalogue import Side
from lethe.metrics.registry import Direction, Metric, Need, Resampling
from lethe.metrics.result import MetricResult
from lethe.metrics.text.membership_attacks import zlib_scores
from lethe.metrics.text.per_run import mean_auc


def mia_text_zlib(
    forget_answer_loss: npt.ArrayLike,
    forget_compressed_bytes: npt.ArrayLike,
    holdout_answer_loss: npt.ArrayLike,
    holdout_compressed_bytes: npt.ArrayLike,
) -> MetricResult:
    """Return the AUC with which forgotten answers are told from unseen ones; 0.5: not at all, 1: always.

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


METRIC = Metric(
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
