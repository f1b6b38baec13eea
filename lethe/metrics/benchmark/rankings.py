"""Methods in order: paired t-tests, the Pareto frontier of several metrics, groups of similar values over cells."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.special import stdtr, stdtrit

from lethe.metrics.core.arrays import Bool, Float64, Int64, real_array
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Need, Parameters, Scope
from lethe.metrics.core.result import MetricResult


@dataclass(frozen=True)
class PairedTest:
    """mean: of the differences. interval: 95 %. effect: Cohen's d_z. p_value: one-sided, H1: the mean is above 0."""

    mean: float
    interval: tuple[float, float]
    effect: float
    p_value: float


def paired_t(higher: npt.ArrayLike, lower: npt.ArrayLike) -> PairedTest:
    """Return the one-sided paired t-test of `higher` above `lower`.

    higher, lower: shape (n_runs,), at least 2, run i of one paired with run i of the other.
    Differences that are all equal have p 0, 1/2 or 1 by their sign.
    Raises InvalidMetricInput for unequal numbers or fewer than 2 runs.
    Source: the MIAU paper, table 5.
    """
    a, b = (real_array(values, axes=("models",), name="values") for values in (higher, lower))
    if a.size != b.size or a.size < 2:
        raise InvalidMetricInput(
            f"a paired test needs at least 2 runs, as many of both sides, not {a.size} and {b.size}"
        )
    difference = a - b
    mean, spread = float(difference.mean()), float(difference.std(ddof=1))
    if spread == 0.0:
        return PairedTest(mean, (mean, mean), float(np.sign(mean) * np.inf) if mean else 0.0, (1 - np.sign(mean)) / 2)
    if mean == 0.0:
        reach = float(stdtrit(difference.size - 1, 0.975)) * spread / np.sqrt(difference.size)
        return PairedTest(mean, (-reach, reach), 0.0, 0.5)
    return paired_t_of_effect(mean, mean / spread, n_runs=difference.size)


def paired_t_of_effect(mean: float, effect: float, *, n_runs: int) -> PairedTest:
    """Return the test from the mean difference and Cohen's d_z = mean / standard deviation (ddof=1), not 0."""
    reach = float(stdtrit(n_runs - 1, 0.975)) * (mean / effect) / np.sqrt(n_runs)
    p_value = float(stdtr(n_runs - 1, -effect * np.sqrt(n_runs)))
    return PairedTest(mean, (float(mean - reach), float(mean + reach)), effect, p_value)


def holm(p_values: npt.ArrayLike) -> Float64:
    """Return p-values corrected for their number by Holm's step-down rule, shape as given."""
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    result = np.empty_like(p)
    result[order] = np.minimum(stepped, 1.0)
    return result


def paired_t_of_methods(values: npt.ArrayLike) -> MetricResult:
    """Return the smallest corrected p-value over pairs of methods, with every pair in `arrays`.

    values: a metric per run, shape (n_methods, n_runs), paired by run. Entry [a, b] of `p_value` tests a above b, and
    Holm's rule corrects over all of them.
    Raises InvalidMetricInput below 2 methods or 2 runs.
    """
    rows = real_array(values, axes=("methods", "models"), name="values")
    n_methods = rows.shape[0]
    if n_methods < 2:
        raise InvalidMetricInput("a comparison needs at least 2 methods, not 1")
    pairs = [(a, b) for a in range(n_methods) for b in range(n_methods) if a != b]
    tests = [paired_t(rows[a], rows[b]) for a, b in pairs]
    corrected = holm([test.p_value for test in tests])
    p_value, difference = np.full((n_methods, n_methods), np.nan), np.zeros((n_methods, n_methods))
    for (a, b), test, p in zip(pairs, tests, corrected, strict=True):
        p_value[a, b], difference[a, b] = p, test.mean
    return MetricResult(float(corrected.min()), arrays={"p_value": p_value, "difference": difference})


PAIRED_T = Metric(
    id="paired_t",
    title="Paired t-tests",
    function=paired_t_of_methods,
    needs={"values": Need("metric_per_run")},
    unit="p (least, corrected)",
    direction=Direction.NONE,
    paired=True,
    bounds=(0.0, 1.0),
    scope=Scope.COMPARISON,
    source="the MIAU paper, section 5.1 and table 5",
    formula="t = d sqrt(n), d = mean / sd(ddof=1) of the differences; one-sided p = sf(t, n - 1)",
    paper_and_code="The paper corrects for no number of tests; Holm's rule over pairs here.",
)


def miau_gradual(values: npt.ArrayLike) -> MetricResult:
    """Return the smallest mean rise between neighbouring levels; above 0, MIAU rises with forgetting.

    values: MIAU per run of models retrained without a growing share of the forget set, shape (n_levels, n_runs),
    from the least forgotten to all of it; paired by run.
    arrays: `difference`, `low`, `high` (95 %), `effect` (Cohen's d_z), `p_value` (one-sided) and `p_holm`, one entry
    per neighbouring pair, shape (n_levels - 1,).
    Raises InvalidMetricInput below 2 levels or 2 runs.
    """
    levels = real_array(values, axes=("levels", "models"), name="MIAU")
    if levels.shape[0] < 2:
        raise InvalidMetricInput("a gradual check needs at least 2 levels, not 1")
    tests = [paired_t(higher, lower) for lower, higher in pairwise(levels)]
    p_values = np.array([test.p_value for test in tests])
    difference = np.array([test.mean for test in tests])
    return MetricResult(
        float(difference.min()),
        table={"negative_steps": int((difference < 0.0).sum()), "steps": len(tests)},
        arrays={
            "difference": difference,
            "low": np.array([test.interval[0] for test in tests]),
            "high": np.array([test.interval[1] for test in tests]),
            "effect": np.array([test.effect for test in tests]),
            "p_value": p_values,
            "p_holm": holm(p_values),
        },
    )


MIAU_GRADUAL = Metric(
    title="Gradual unlearning check",
    function=miau_gradual,
    needs={"values": Need("metric_per_run")},
    unit="points of MIAU",
    direction=Direction.HIGHER,
    paired=True,
    scope=Scope.BENCHMARK,
    source="the MIAU paper, section 5.1 and table 5",
    formula="MIAU_25 < MIAU_50 < MIAU_75 < MIAU_full, each step by a one-sided paired t-test",
    paper_and_code=(
        "The text says that the score rises with the portion preserved; tables and figure 3 mean the portion "
        "forgotten. 6 of the 26 mean differences in table 5 are negative. Holm's correction is added here."
    ),
)


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
    other, own = points[:, None], points[None]
    if standard_errors is None:
        dominates = (other <= own).all(axis=2) & (other < own).any(axis=2)
    else:
        errors = _checked_errors(standard_errors, points.shape)
        dominates = (own - other > np.hypot(errors[:, None], errors[None])).all(axis=2)
    return np.asarray(present & ~dominates.any(axis=0))


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
