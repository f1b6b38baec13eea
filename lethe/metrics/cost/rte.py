"""How many times faster than retraining."""

import numpy as np

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.registry import Direction, Metric, Need, Resampling
from lethe.metrics.core.result import MetricResult


def rte(wall_time_s: Float64, retraining_time_s: float) -> MetricResult:
    """Return the time of one retraining over the median time of a run, > 0; above 1 is faster than retraining.

    wall_time_s: of every run, shape (n_models,), seconds. retraining_time_s: one number, measured on the same kind of
    device. per_run: the ratio of every run.
    Source: Cadet et al. 2024 (arXiv:2410.01276), section 5.4: run time efficiency.
    """
    return MetricResult(float(retraining_time_s / np.median(wall_time_s)), per_run=retraining_time_s / wall_time_s)


METRIC = Metric(
    id="rte",
    title="Run time efficiency (RTE)",
    function=rte,
    needs={"wall_time_s": Need("wall_time_s"), "retraining_time_s": Need("retraining_time_s", Side.SHARED)},
    unit="times",
    direction=Direction.HIGHER,
    resampling=Resampling.MODELS,
    bounds=(0.0, float("inf")),
    source="Cadet et al. 2024 (2410.01276), section 5.4",
    formula="t_retraining / median_i t_i",
)
