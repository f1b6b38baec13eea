"""How far the mean confidence on a forgotten example is from that of the retrained models."""

import numpy as np

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.registry import Direction, Metric, Need, Resampling
from lethe.metrics.core.result import MetricResult


def new_metric(unlearned: Float64, retrained: Float64) -> MetricResult:
    """Return the mean over examples of |mean of unlearned - mean of retrained|; 0 is ideal.

    unlearned, retrained: logit-scaled confidences, shape (n_models, n_examples); the numbers of models may differ.
    """
    distances = np.abs(unlearned.mean(axis=0) - retrained.mean(axis=0))
    return MetricResult(float(distances.mean()), per_example=distances)


METRIC = Metric(
    title="New metric",
    function=new_metric,
    needs={"unlearned": Need("forget_margins"), "retrained": Need("forget_margins", Side.RETRAINED)},
    unit="logit",
    direction=Direction.LOWER,
    ideal=0.0,
    bounds=(0.0, float("inf")),
    per_example=True,
    resampling=Resampling.MODELS,
    source="an example; name the paper and its section here",
    formula="mean_x | mean_i h_u,i(x) - mean_i h_r,i(x) |",
)
