"""The methods that no other method dominates in two or more metrics."""

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.arrays import Bool, Float64, Int64
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Scope
from lethe.metrics.core.result import MetricResult


def pareto_frontier(losses: npt.ArrayLike, *, standard_errors: npt.ArrayLike | None = None) -> Bool:
    """Return which methods are on the frontier, shape (n_methods,).

    losses: shape (n_methods, n_metrics), lower is better in each; a method with a NaN failed and is off the frontier.
    A method is dominated by one that is no worse in every metric and better in one; equal methods stay both.
    standard_errors: same shape, >= 0. With them a method is dominated only by one that is better by more than one
    standard error (of the difference) in every metric, so noise takes nothing off the frontier.
    Raises InvalidMetricInput for unequal shapes, infinite losses or negative errors.
    Source: Cadet et al. 2024 (arXiv:2410.01276), section 5.6: RetDev against indiscernibility.
    """
    points = np.asarray(losses, np.float64)
    if points.ndim != 2 or 0 in points.shape or np.isinf(points).any():
        raise InvalidMetricInput(f"losses must be finite or NaN, of shape (n_methods, n_metrics), not {points.shape}")
    present = ~np.isnan(points).any(axis=1)
    if standard_errors is None:
        dominated = _dominated(points)
    else:
        dominated = _clearly_dominated(points, _checked_errors(standard_errors, points.shape))
    return np.asarray(present & ~dominated)


def pareto_counts(losses: npt.ArrayLike, *, standard_errors: npt.ArrayLike | None = None) -> Int64:
    """Return in how many cells every method is on the frontier, shape (n_methods,).

    losses, standard_errors: shape (n_cells, n_methods, n_metrics); each cell as for `pareto_frontier`.
    """
    cells = np.asarray(losses, np.float64)
    if cells.ndim != 3:
        raise InvalidMetricInput(f"losses must have shape (n_cells, n_methods, n_metrics), not {cells.shape}")
    errors = [None] * len(cells) if standard_errors is None else list(_checked_errors(standard_errors, cells.shape))
    frontiers = [pareto_frontier(cell, standard_errors=error) for cell, error in zip(cells, errors, strict=True)]
    return np.asarray(np.sum(frontiers, axis=0), dtype=np.int64)


def pareto_result(losses: npt.ArrayLike) -> MetricResult:
    """Return the number of methods on the frontier in some cell; the table has the counts. As `pareto_counts`."""
    counts = pareto_counts(losses)
    return MetricResult(float((counts > 0).sum()), table={"cells_on_frontier": counts.tolist()})


def _dominated(points: Float64) -> Bool:
    other, own = points[:, None], points[None]
    return np.asarray(((other <= own).all(axis=2) & (other < own).any(axis=2)).any(axis=0))


def _clearly_dominated(points: Float64, errors: Float64) -> Bool:
    apart = np.hypot(errors[:, None], errors[None])
    return np.asarray((points[None] - points[:, None] > apart).all(axis=2).any(axis=0))


def _checked_errors(values: npt.ArrayLike, shape: tuple[int, ...]) -> Float64:
    errors = np.asarray(values, np.float64)
    if errors.shape != shape or (errors < 0).any():
        raise InvalidMetricInput(f"standard errors must be >= 0 and have the shape of the losses, {shape}")
    return errors


METRIC = Metric(
    id="pareto",
    title="Pareto frontier",
    function=pareto_result,
    needs={},
    unit="methods on the frontier",
    direction=Direction.NONE,
    scope=Scope.BENCHMARK,
    source="Cadet et al. 2024 (2410.01276), section 5.6",
    formula="{k : no j with l_j <= l_k in every metric and l_j < l_k in one}",
)
