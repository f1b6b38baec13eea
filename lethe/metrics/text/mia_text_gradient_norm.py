"""Gradient-norm attack on answers: told from unseen ones by the norm of the loss's gradient."""

import numpy.typing as npt

from lethe.metrics.registry import Direction, Metric, Need, Resampling
from lethe.metrics.result import MetricResult
from lethe.metrics.text.losses import some_examples
from lethe.metrics.text.per_run import mean_auc


def mia_text_gradient_norm(
    forget_gradient_norm: npt.ArrayLike,
    holdout_gradient_norm: npt.ArrayLike,
) -> MetricResult:
    """Return the AUC with which forgotten answers are told from unseen ones; 0.5: not at all, 1: always.

    Of the forgotten and of the held-out answers each:
    gradient_norm: shape (n_runs, n).
    Raises InvalidMetricInput for values that are not finite.
    Source: as in open-unlearning (2506.12618).
    """
    return mean_auc(
        some_examples(forget_gradient_norm, "forget_gradient_norm"),
        some_examples(holdout_gradient_norm, "holdout_gradient_norm"),
    )


METRIC = Metric(
    id="mia_text_gradient_norm",
    title="Gradient-norm attack on answers",
    function=mia_text_gradient_norm,
    needs={
        "forget_gradient_norm": Need("forget_gradient_norm"),
        "holdout_gradient_norm": Need("holdout_gradient_norm"),
    },
    unit="AUC",
    direction=Direction.TOWARDS_RETRAINED,
    bounds=(0.0, 1.0),
    resampling=Resampling.RUNS,
    source="as in open-unlearning (2506.12618)",
    formula="AUC of the norm of the gradient of the answer's loss",
)
