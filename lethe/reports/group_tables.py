"""Tables of ranking groups: how often each method is in each group, and how far apart the groups are."""

import numpy as np

from lethe.benchmark.benchmark_results import BenchmarkResults
from lethe.metrics.benchmark.rankings import N_GROUPS, dense_ranks, ranking_groups
from lethe.metrics.core.arrays import Int64
from lethe.reports.table import Column, Table, Value

GROUPS = tuple(f"G{number}" for number in range(1, N_GROUPS + 1))


def group_counts(results: BenchmarkResults, metric: str, *, higher_is_better: bool) -> tuple[Int64, Int64]:
    """Return counts in G1, G2, G3 and failed, shape (n_ranked, 4), and ranks, shape (n_ranked,).

    References take no part. A missing value is in no group and no failure.
    """
    chosen = results.ranked
    found = ranking_groups(results.metric(metric)[:, chosen], higher_is_better=higher_is_better)
    counts = found.counts.copy()
    counts[:, N_GROUPS] = results.failures[:, chosen].sum(axis=0)
    return counts, dense_ranks(-counts[:, :N_GROUPS])


def grouped_values(counts: Int64, rank: int) -> tuple[Value, ...]:
    """Return a method's counts and rank as values of a row; nothing is shown of a method that is in no cell yet."""
    return (*counts.tolist(), int(rank)) if counts.any() else (None,) * (len(counts) + 1)


def group_mean_table(results: BenchmarkResults, metric: str, *, higher_is_better: bool) -> Table:
    """Return a row per cell: worst value, means of the groups from last to first, best value.

    Source: Cadet et al. 2024 (arXiv:2410.01276), table V.
    """
    values = results.metric(metric)[:, results.ranked]
    groups = ranking_groups(values, higher_is_better=higher_is_better).groups
    rows: list[tuple[Value, ...]] = []
    for cell, row, group in zip(results.cells, values, groups, strict=True):
        present = row[~np.isnan(row)]
        means = [float(row[group == g].mean()) if (group == g).any() else None for g in range(N_GROUPS, 0, -1)]
        ends = (float(present.min()), float(present.max())) if present.size else (None, None)
        worst, best = ends if higher_is_better else ends[::-1]
        rows.append((cell, worst, *means, best))
    columns = ("Cell", "Worst", *(f"{name} mean" for name in reversed(GROUPS)), "Best")
    return Table(f"Group means of {metric}", tuple(Column(name) for name in columns), tuple(rows))
