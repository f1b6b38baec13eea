"""From a formula for one model to a metric of several runs: the mean of the metric, never the metric of a mean."""

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.result import MetricResult


def mean_of_examples(values: npt.ArrayLike) -> MetricResult:
    """Return the mean over examples per run, and over runs per example. values: shape (n_runs, n_examples)."""
    array = np.asarray(values, np.float64)
    per_run = array.mean(axis=1)
    return MetricResult(float(per_run.mean()), per_run=per_run, per_example=array.mean(axis=0))
