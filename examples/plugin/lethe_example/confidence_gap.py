"""How far the mean confidence on the forget set is from that of the retrained models."""

import numpy as np
import numpy.typing as npt

from lethe.metrics import Metric, MetricResult, Resampling, Side
from lethe.metrics.core.registry import Need


def confidence_gap(unlearned: npt.ArrayLike, retrained: npt.ArrayLike) -> MetricResult:
    """Return |mean of unlearned - mean of retrained|; 0 is ideal.

    unlearned, retrained: logit-scaled confidences, shape (n_models, n_examples) each; the numbers of models may differ.
    """
    u, r = (np.asarray(side, dtype=np.float64) for side in (unlearned, retrained))
    return MetricResult(float(abs(u.mean() - r.mean())), per_example=np.abs(u.mean(axis=0) - r.mean(axis=0)))


METRIC = Metric(
    title="Gap of mean confidence",
    function=confidence_gap,
    needs={"unlearned": Need("forget_margins"), "retrained": Need("forget_margins", Side.RETRAINED)},
    unit="logit",
    ideal=0.0,
    bounds=(0.0, float("inf")),
    per_example=True,
    resampling=Resampling.MODELS,
    source="an example",
    formula="|mean h_u - mean h_r|, h = log(p / (1 - p)) of the right class on the forget set",
)
