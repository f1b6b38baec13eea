"""Ranks over splits of one task, as a table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lethe.benchmark.benchmark_results import BenchmarkResults
from lethe.benchmark.results import higher_is_better
from lethe.benchmark.split_ranking import SplitRanking, rank_over_splits, same_task_cells
from lethe.metrics.core.arrays import Float64, Int64
from lethe.reports.table import Column, Table, Value

MIN_SPLITS = 5  # with fewer, a ranking is no result


@dataclass(frozen=True, eq=False)
class Ranked:
    """The ranked methods of one task; `order` holds their numbers, the best first."""

    methods: list[str]
    found: SplitRanking
    order: Int64


def ranked_over_splits(results: BenchmarkResults, cells: Sequence[str], metric: str) -> Ranked | None:
    """Return the ranking of the methods that have a value in each of these cells; None of fewer than 2 of either."""
    values = results.metric(metric)[[results.cells.index(name) for name in cells]][:, results.ranked].T
    known = np.asarray(~np.isnan(values).any(axis=1))
    if len(cells) < 2 or known.sum() < 2:
        return None
    methods = [results.methods[i] for i, there in zip(results.ranked, known, strict=True) if there]
    found = rank_over_splits(values[known], higher_is_better=higher_is_better(metric))
    return Ranked(methods, found, np.argsort(mean_ranks(found), kind="stable"))


def mean_ranks(found: SplitRanking) -> Float64:
    """Return each method's mean rank, from 1. Shape: (n_methods,)."""
    return np.asarray(found.rank_probability @ np.arange(1, len(found.mean) + 1))


def probable_ranks(probability: Float64) -> tuple[int, int]:
    """Return the first and the last of the ranks that hold 90 % of the probability. Shape: (n_ranks,)."""
    total = np.cumsum(probability)
    low, high = (int(np.searchsorted(total, share - 1e-9)) + 1 for share in (0.05, 0.95))
    return low, high


def split_ranking_tables(
    content: Mapping[str, Any], results: BenchmarkResults, metric: str, *, note: str
) -> Iterator[Table]:
    """Yield for each task with two or more splits a row per ranked method, best mean rank first.

    Columns: mean, probability of the first rank, mean rank, ranks that hold 90 % of the probability, letters: two
    methods share one if all pairwise tests leave their difference open. A
    method without a value in some split is left out.
    """
    for names in same_task_cells(content):
        ranked = ranked_over_splits(results, names, metric)
        if ranked is None:
            continue
        rows = tuple(_row(ranked, i) for i in ranked.order)
        few = "" if len(names) >= MIN_SPLITS else f", fewer than {MIN_SPLITS} splits: not for citing"
        columns = (
            Column("Method"), Column(f"{metric}, mean", 3), Column("P(first)"), Column("mean rank"),
            Column("ranks, 90 %"), Column("letters"),
        )  # fmt: skip
        yield Table(f"Ranks by {metric} over {len(names)} splits ({', '.join(names)}){few}{note}", columns, rows)


def _row(ranked: Ranked, i: int) -> tuple[Value, ...]:
    found = ranked.found
    probability = found.rank_probability[i]
    low, high = probable_ranks(probability)
    mean, first, mean_rank = float(found.mean[i]), float(probability[0]), float(mean_ranks(found)[i])
    return (ranked.methods[i], mean, first, mean_rank, f"{low} to {high}", found.letters[i])
