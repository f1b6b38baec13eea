"""Loss attack on answers: told from unseen ones by the loss."""

import numpy.typing as npt

from lethe.metrics.registry import Direction, Metric, Need, Resampling
from lethe.metrics.result import MetricResult
from lethe.metrics.text.losses import some_examples
from lethe.metrics.text.per_run import mean_auc


def mia_text_loss(
    forget_answer_loss: npt.ArrayLike,
    holdout_answer_loss: npt.ArrayLike,
) -> MetricResult:
    """Return the AUC with which forgotten answers are told from unseen ones; 0.5: not at all, 1: always.

    Of the forgotten and of the held-out answers each:
    answer_loss: shape (n_runs, n), nats per token.
    Raises InvalidMetricInput for values that are not finite.
    Source: Yeom et al. 2018.
    """
    return mean_auc(
        some_examples(forget_answer_loss, "forget_answer_loss"),
        some_examples(holdout_answer_loss, "holdout_answer_loss"),
    )


METRIC = Metric(
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
