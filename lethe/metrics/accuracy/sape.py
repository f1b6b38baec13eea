"""The symmetric absolute percentage error between two accuracies."""

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.registry import Direction, Metric, Resampling, both_sides
from lethe.metrics.core.result import MetricResult


def sape(unlearned: Float64, retrained: Float64) -> MetricResult:
    """Return the error between the mean forget accuracies, in percent, within [0, 100]; 0 is ideal.

    unlearned, retrained: forget accuracy of every model, shape (n_models,), in [0, 1]; the numbers may differ.
    Source: Cadet et al. 2024 (arXiv:2410.01276), program, after Zhang et al. 2023.
    """
    return MetricResult(float(symmetric_percentage_error(unlearned.mean(), retrained.mean())))


def symmetric_percentage_error(first: npt.ArrayLike, second: npt.ArrayLike) -> Float64:
    """Return 100 |a - b| / (|a| + |b|), broadcast shape, float64; 0 where both are 0."""
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    total = np.abs(b) + np.abs(a)
    return np.asarray(np.abs(b - a) / np.where(total == 0.0, 1.0, total) * 100)


METRIC = Metric(
    id="sape",
    title="Symmetric absolute percentage error (SAPE)",
    function=sape,
    needs=both_sides("forget_accuracy"),
    unit="percent",
    direction=Direction.LOWER,
    ideal=0.0,
    resampling=Resampling.MODELS,
    bounds=(0.0, 100.0),
    source="Cadet et al. 2024 (2410.01276), program; Zhang et al. 2023",
    formula="100 |a - b| / (|a| + |b|)",
    paper_and_code="The program divides by zero when both are 0; here the error is 0.",
)
