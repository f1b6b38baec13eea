"""How far the unlearned models' accuracy on the forget set is from the retrained models'."""

import numpy.typing as npt

from lethe.metrics.core.arrays import shares
from lethe.metrics.core.registry import Direction, Metric, Resampling, both_sides
from lethe.metrics.core.result import MetricResult


def accuracy_gap(unlearned: npt.ArrayLike, retrained: npt.ArrayLike) -> MetricResult:
    """Return |mean unlearned accuracy - mean retrained accuracy|, a share in [0, 1]; 0 is ideal.

    unlearned, retrained: accuracies per model, shape (n_models,) each; the numbers may differ.
    table: the signed difference; above 0 the forget set is still known better than after retraining.
    Raises InvalidMetricInput for values outside [0, 1].
    Source: Triantafillou et al. 2024, question 4 and figure 6.
    """
    u = shares(unlearned, axes=("models",), name="accuracies", side="unlearned")
    r = shares(retrained, axes=("models",), name="accuracies", side="retrained")
    difference = float(u.mean() - r.mean())
    return MetricResult(abs(difference), table={"difference": difference, "unlearned": u.mean(), "retrained": r.mean()})


METRIC = Metric(
    id="accuracy_gap",
    title="Accuracy gap",
    function=accuracy_gap,
    needs=both_sides("forget_accuracy"),
    unit="share of the forget set",
    direction=Direction.LOWER,
    ideal=0.0,
    resampling=Resampling.MODELS,
    source="Triantafillou et al. 2024 (2406.09073), question 4, figure 6",
    formula="| mean_i FA_u,i - mean_i FA_r,i |",
)
