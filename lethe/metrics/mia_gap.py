"""How far the loss attack's accuracy is from the one on retrained models."""

from dataclasses import replace

import numpy.typing as npt

from lethe.metrics import mia_loss
from lethe.metrics.arrays import shares
from lethe.metrics.registry import Direction, Resampling
from lethe.metrics.result import MetricResult


def mia_gap(unlearned: npt.ArrayLike, retrained: npt.ArrayLike) -> MetricResult:
    """Return |mean attack accuracy on unlearned - mean on retrained models|; 0 is ideal.

    unlearned, retrained: held-out accuracies, one per model, shape (n_models,) each; the numbers may differ.
    Raises InvalidMetricInput for values outside [0, 1].
    Source: Triantafillou et al. 2024, appendix A.11.
    """
    u = shares(unlearned, axes=("models",), name="attack accuracies", side="unlearned")
    r = shares(retrained, axes=("models",), name="attack accuracies", side="retrained")
    difference = float(u.mean() - r.mean())
    return MetricResult(
        abs(difference),
        table={"difference": difference, "unlearned": float(u.mean()), "retrained": float(r.mean())},
    )


METRIC = replace(
    mia_loss.METRIC,
    id="mia_gap",
    title="MIA gap",
    function=mia_gap,
    direction=Direction.LOWER,
    ideal=0.0,
    resampling=Resampling.MODELS,
    formula="| mean_i MIA(u_i) - mean_i MIA(r_i) | with MIA = mia_loss per model",
)
