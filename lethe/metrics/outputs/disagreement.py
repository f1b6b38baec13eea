"""How often unlearned and retrained models predict different classes."""

import numpy as np

from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.registry import Direction, Metric, Resampling, both_sides
from lethe.metrics.core.result import MetricResult


def disagreement(unlearned: Float64, retrained: Float64) -> MetricResult:
    """Return the share of forget examples on which paired models predict different classes, in [0, 1]; 0 is ideal.

    unlearned, retrained: network outputs or probabilities, shape (n_models, n_examples, n_classes) each; of equal
    outputs the first class counts. per_run: mean over examples. per_example: mean over pairs.
    Source: Goel et al. 2022 (arXiv:2201.06640), table 1, distance of predictions.
    """
    different = unlearned.argmax(axis=2) != retrained.argmax(axis=2)
    per_run = different.mean(axis=1, dtype=np.float64)
    per_example = different.mean(axis=0, dtype=np.float64)
    return MetricResult(float(per_run.mean()), per_run=per_run, per_example=per_example)


METRIC = Metric(
    id="disagreement",
    title="Disagreement of predictions",
    function=disagreement,
    needs=both_sides("forget_logits"),
    unit="share of the forget set",
    direction=Direction.LOWER,
    ideal=0.0,
    paired=True,
    per_example=True,
    resampling=Resampling.RUNS,
    bounds=(0.0, 1.0),
    source="Goel et al. 2022 (2201.06640), table 1",
    formula="mean_x [argmax p_u(x) != argmax p_r(x)]",
    paper_and_code="The program sums the differences of class numbers, which mean nothing for unordered classes.",
)
