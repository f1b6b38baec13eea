"""Methods in order: the Pareto frontier of several metrics, and groups of similar values over cells."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.cluster.hierarchy import cut_tree, linkage

from lethe.metrics.core.arrays import Bool, Float64, Int64
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Parameters, Scope
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


PARETO = Metric(
    id="pareto",
    title="Pareto frontier",
    function=pareto_result,
    unit="methods on the frontier",
    direction=Direction.NONE,
    scope=Scope.BENCHMARK,
    source="Cadet et al. 2024 (2410.01276), section 5.6",
    formula="{k : no j with l_j <= l_k in every metric and l_j < l_k in one}",
)


FAILED = 0
N_GROUPS = 3


@dataclass(frozen=True, eq=False)
class RankedMethods:
    """groups: shape (n_cells, n_methods), 1 is best, 0 failed. counts: shape (n_methods, 4), in groups 1 to 3, failed.

    ranks: shape (n_methods,), from 1; equal counts share a rank and the next rank follows without a gap.
    """

    groups: Int64
    counts: Int64
    ranks: Int64


def ranking_groups(values: npt.ArrayLike, *, higher_is_better: bool) -> RankedMethods:
    """Return groups, counts and ranks of methods over cells (data set x network).

    values: the metric, shape (n_cells, n_methods); NaN where the method failed. In each cell the methods that did not
    fail are clustered by Ward linkage into 3 groups, or as many as there are different values.
    Raises InvalidMetricInput for another shape or an infinite value.
    Source: Cadet et al. 2024 (arXiv:2410.01276), section 5.6. They publish no program and name no linkage; Ward's
    reproduces their tables III, XVI and XVII, single, average and complete linkage do not.
    """
    table = np.asarray(values, np.float64)
    if table.ndim != 2 or 0 in table.shape or np.isinf(table).any():
        raise InvalidMetricInput(f"values must be finite or NaN, of shape (n_cells, n_methods), not {table.shape}")
    groups = np.array([_groups_of_cell(row if higher_is_better else -row) for row in table], np.int64)
    order = [*range(1, N_GROUPS + 1), FAILED]
    counts = np.stack([(groups == group).sum(axis=0) for group in order], axis=1)
    return RankedMethods(groups, counts, dense_ranks(-counts[:, :N_GROUPS]))


class RankingParameters(Parameters):
    """higher_is_better: of the metric that is ranked."""

    higher_is_better: bool = False


def ranking_result(values: npt.ArrayLike, *, higher_is_better: bool = False) -> MetricResult:
    """Return the number of methods that share the first rank; the table has a row per method. As `ranking_groups`."""
    found = ranking_groups(values, higher_is_better=higher_is_better)
    columns = dict(zip(("group_1", "group_2", "group_3", "failed"), found.counts.T.tolist(), strict=True))
    return MetricResult(float((found.ranks == 1).sum()), table={**columns, "rank": found.ranks.tolist()})


def dense_ranks(keys: npt.NDArray[np.int64]) -> Int64:
    """Return ranks from 1 of rows in ascending order, compared column by column; equal rows share a rank."""
    _, inverse = np.unique(keys, axis=0, return_inverse=True)
    return np.asarray(inverse.reshape(-1) + 1)


def _groups_of_cell(row: Float64) -> Sequence[int]:
    """Return the group of every method, 1 for the highest values, 0 for NaN."""
    groups = np.full(row.size, FAILED)
    present = np.flatnonzero(~np.isnan(row))
    levels = np.unique(row[present])
    if levels.size <= N_GROUPS:
        groups[present] = levels.size - np.searchsorted(levels, row[present])
        return list(groups)
    clusters = cut_tree(linkage(row[present, None], method="ward"), [N_GROUPS])[:, 0]
    members = [np.flatnonzero(clusters == number) for number in range(N_GROUPS)]
    members.sort(key=lambda group: -row[present[group]].mean())
    for number, group in enumerate(members, start=1):
        groups[present[group]] = number
    return list(groups)


RANKING_GROUPS = Metric(
    id="ranking_groups",
    title="Ranking groups",
    function=ranking_result,
    unit="methods of rank 1",
    direction=Direction.NONE,
    defaults=RankingParameters,
    scope=Scope.BENCHMARK,
    source="Cadet et al. 2024 (2410.01276), section 5.6, tables III, XVI, XVII",
    formula="Ward linkage of one cell's values, cut at 3 clusters; rank by (-#G1, -#G2, -#G3)",
    paper_and_code="The paper speaks of cut-off points and publishes no program; Ward linkage reproduces its tables.",
)
