"""How many times faster than retraining."""

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64, real_array
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Need, Resampling
from lethe.metrics.core.result import MetricResult


def rte(wall_time_s: npt.ArrayLike, retraining_time_s: npt.ArrayLike) -> MetricResult:
    """Return the time of one retraining over the median time of a run, > 0; above 1 is faster than retraining.

    wall_time_s: of every run, shape (n_models,), seconds. retraining_time_s: one number, measured on the same kind of
    device. per_run: the ratio of every run.
    Raises InvalidMetricInput for times that are not above 0.
    Source: Cadet et al. 2024 (arXiv:2410.01276), section 5.4: run time efficiency.
    """
    runs = _times(np.atleast_1d(np.asarray(wall_time_s)), name="run times")
    retraining = _times(np.asarray(retraining_time_s).reshape(-1), name="retraining time")
    if retraining.size != 1:
        raise InvalidMetricInput(f"the retraining time must be one number, not {retraining.size}")
    return MetricResult(float(retraining[0] / np.median(runs)), per_run=retraining[0] / runs)


def _times(values: npt.ArrayLike, *, name: str) -> Float64:
    times = real_array(values, axes=("models",), name=name)
    if (times <= 0.0).any():
        model = int(np.flatnonzero(times <= 0.0)[0])
        raise InvalidMetricInput(f"{name} must be above 0 s, not {times[model]} at model {model}", model=model)
    return times


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
