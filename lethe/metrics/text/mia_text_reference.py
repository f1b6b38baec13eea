"""Reference attack on answers: told from unseen ones by the loss minus a reference model's loss."""

import numpy as np
import numpy.typing as npt

from lethe.metrics.array_catalogue import Side
from lethe.metrics.registry import Direction, Metric, Need, Resampling
from lethe.metrics.result import MetricResult
from lethe.metrics.text.membership_attacks import reference_scores
from lethe.metrics.text.per_run import mean_auc


def mia_text_reference(
    forget_answer_loss: npt.ArrayLike,
    forget_reference_loss: npt.ArrayLike,
    holdout_answer_loss: npt.ArrayLike,
    holdout_reference_loss: npt.ArrayLike,
) -> MetricResult:
    """Return the AUC with which forgotten answers are told from unseen ones; 0.5: not at all, 1: always.

    Of the forgotten and of the held-out answers each:
    answer_loss: shape (n_runs, n), nats per token.
    reference_loss: shape (n,), nats per token.
    Raises InvalidMetricInput for values that are not finite.
    Source: Carlini et al. 2021.
    """
    return mean_auc(
        reference_scores(forget_answer_loss, np.broadcast_to(forget_reference_loss, np.shape(forget_answer_loss))),
        reference_scores(holdout_answer_loss, np.broadcast_to(holdout_reference_loss, np.shape(holdout_answer_loss))),
    )


METRIC = Metric(
    id="mia_text_reference",
    title="Reference attack on answers",
    function=mia_text_reference,
    needs={
        "forget_answer_loss": Need("forget_answer_loss"),
        "forget_reference_loss": Need("forget_reference_loss", Side.SHARED),
        "holdout_answer_loss": Need("holdout_answer_loss"),
        "holdout_reference_loss": Need("holdout_reference_loss", Side.SHARED),
    },
    unit="AUC",
    direction=Direction.TOWARDS_RETRAINED,
    bounds=(0.0, 1.0),
    resampling=Resampling.RUNS,
    source="Carlini et al. 2021",
    formula="AUC of loss - loss of the reference model",
)
