"""The table of ranks over splits of one task."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from lethe.benchmark.benchmark_results import BenchmarkResults
from lethe.benchmark.results import higher_is_better
from lethe.benchmark.split_ranking import rank_over_splits, same_task_cells
from lethe.reports.table import Column, Table, Value

FEWEST_SPLITS = 5  # with fewer, a ranking is no result


def split_ranking_tables(
    content: Mapping[str, Any], results: BenchmarkResults, metric: str, *, note: str
) -> Iterator[Table]:
    """Yield for each task with two or more splits a row per ranked method, best mean first.

    Columns: mean, probability of the first rank, mean rank, ranks that hold 90 % of the probability, Holm group. A
    method without a value in some split is left out.
    """
    for names in same_task_cells(content):
        rows_of_cells = [results.cells.index(name) for name in names]
        values = results.metric(metric)[rows_of_cells][:, results.ranked].T
        known = np.asarray(~np.isnan(values).any(axis=1))
        if len(names) < 2 or known.sum() < 2:
            continue
        methods = [results.methods[i] for i, there in zip(results.ranked, known, strict=True) if there]
        found = rank_over_splits(values[known], higher_is_better=higher_is_better(metric))
        order = np.lexsort((-found.rank_probability[:, 0], found.group))
        rows = tuple(_row(methods[i], found.mean[i], found.rank_probability[i], int(found.group[i])) for i in order)
        few = "" if len(names) >= FEWEST_SPLITS else f", fewer than {FEWEST_SPLITS} splits: not for citing"
        columns = (
            Column("Method"), Column(f"{metric}, mean", 3), Column("P(first)"), Column("mean rank"),
            Column("ranks, 90 %"), Column("Holm group"),
        )  # fmt: skip
        yield Table(f"Ranks by {metric} over {len(names)} splits ({', '.join(names)}){few}{note}", columns, rows)


def _row(method: str, mean: float, probability: Any, group: int) -> tuple[Value, ...]:
    ranks = np.arange(1, len(probability) + 1)
    total = np.cumsum(probability)
    low, high = (int(ranks[np.searchsorted(total, share - 1e-9)]) for share in (0.05, 0.95))
    return (method, float(mean), float(probability[0]), float(probability @ ranks), f"{low} to {high}", group)
