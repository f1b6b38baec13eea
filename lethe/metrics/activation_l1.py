"""How far the unlearned models' probabilities are from those of the retrained models."""

import numpy as np
import numpy.typing as npt

from lethe.metrics.array_catalogue import Side
from lethe.metrics.arrays import probability_rows, require_same_classes, require_same_examples, require_same_models
from lethe.metrics.registry import Direction, Metric, Need, Resampling
from lethe.metrics.result import MetricResult


def activation_l1(unlearned: npt.ArrayLike, retrained: npt.ArrayLike) -> MetricResult:
    """Return the mean L1 distance between the probabilities of paired models, in [0, 2]; 0 is ideal.

    unlearned, retrained: shape (n_models, n_examples, n_classes) each, rows that sum to one.
    per_run: mean over examples. per_example: mean over pairs.
    Raises InvalidMetricInput for unequal shapes or rows that are no probabilities.
    Source: Goel et al. 2022 (arXiv:2201.06640), table 1; their program, `activations_distance`.
    """
    u = probability_rows(unlearned, name="probabilities", side="unlearned")
    r = probability_rows(retrained, name="probabilities", side="retrained")
    require_same_models(unlearned=u, retrained=r)
    require_same_examples(unlearned=u, retrained=r)
    require_same_classes(unlearned=u, retrained=r)
    distances = np.abs(u - r).sum(axis=2)
    per_run = distances.mean(axis=1)
    return MetricResult(float(per_run.mean()), per_run=per_run, per_example=distances.mean(axis=0))


METRIC = Metric(
    id="activation_l1",
    title="L1 distance of probabilities",
    function=activation_l1,
    needs={"unlearned": Need("forget_probabilities"), "retrained": Need("forget_probabilities", Side.RETRAINED)},
    unit="L1 distance",
    direction=Direction.LOWER,
    ideal=0.0,
    paired=True,
    per_example=True,
    resampling=Resampling.RUNS,
    bounds=(0.0, 2.0),
    source="Goel et al. 2022 (2201.06640), table 1",
    formula="mean_x sum_c |p_u(c|x) - p_r(c|x)|",
)
