"""From a formula for one model to a metric of several runs: the mean of the metric, never the metric of a mean."""

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.result import MetricResult
from lethe.metrics.text.membership_attacks import attack_auc


def mean_of_examples(values: npt.ArrayLike) -> MetricResult:
    """Return the mean over examples per run, and over runs per example. values: shape (n_runs, n_examples)."""
    array = np.asarray(values, np.float64)
    per_run = array.mean(axis=1)
    return MetricResult(float(per_run.mean()), per_run=per_run, per_example=array.mean(axis=0))


def mean_of_runs(per_run: list[float], **table: float) -> MetricResult:
    """Return the mean of one number per run."""
    return MetricResult(float(np.mean(per_run)), per_run=np.asarray(per_run, np.float64), table=table)


def mean_auc(forget_scores: npt.ArrayLike, holdout_scores: npt.ArrayLike) -> MetricResult:
    """Return the mean AUC of an attack. Shapes (n_runs, n) and (n_runs, m)."""
    pairs = zip(np.asarray(forget_scores), np.asarray(holdout_scores), strict=True)
    return mean_of_runs([attack_auc(forget, holdout) for forget, holdout in pairs])
