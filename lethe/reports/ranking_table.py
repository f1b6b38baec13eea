"""The summary of a benchmark: groups and rank of every method by each metric, and its Pareto counts."""

from collections.abc import Mapping

import numpy as np

from lethe.benchmark.benchmark_results import BenchmarkResults
from lethe.metrics.benchmark.rankings import pareto_counts
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.reports.group_tables import GROUPS, group_counts, grouped_values
from lethe.reports.table import Column, Table, Value

DEEPUNLEARN = {"retdev": False, "indiscernibility": True}


def ranking_table(results: BenchmarkResults, higher_is_better: Mapping[str, bool] = DEEPUNLEARN) -> Table:
    """Return a row per ranked method, best rank by the first metric first, ties by the next, then by name.

    higher_is_better: metric -> direction. Columns: for each metric G1, G2, G3, F and rank; the number of cells with
    the method on the Pareto frontier of all these metrics; and, where all have standard errors, on the frontier that
    noise within one standard error takes nothing off. A method without a value or a failure has no rank.
    Raises InvalidMetricInput without a metric. Source: Cadet et al. 2024 (arXiv:2410.01276), table III.
    """
    if not higher_is_better:
        raise InvalidMetricInput("a ranking needs at least one metric")
    parts = {name: group_counts(results, name, higher_is_better=up) for name, up in higher_is_better.items()}
    fronts = pareto_columns(results, higher_is_better)
    methods = [results.methods[i] for i in results.ranked]
    order = sorted(range(len(methods)), key=lambda i: (*(r[i] for _, r in parts.values()), methods[i].casefold()))
    rows: list[tuple[Value, ...]] = []
    for i in order:
        grouped = [value for counts, ranks in parts.values() for value in grouped_values(counts[i], ranks[i])]
        rows.append((methods[i], *grouped, *(counts[i] for counts in fronts.values())))
    headings = [f"{name} {part}" for name in parts for part in (*GROUPS, "F", "rank")]
    columns = tuple(Column(name) for name in ("Method", *headings, *fronts))
    return Table("Ranking of methods", columns, tuple(rows))


def pareto_table(results: BenchmarkResults, higher_is_better: Mapping[str, bool] = DEEPUNLEARN) -> Table:
    """Return a row per ranked method: in how many cells it is on the Pareto frontier, most first, then by name."""
    fronts = pareto_columns(results, higher_is_better)
    methods = [results.methods[i] for i in results.ranked]
    order = sorted(range(len(methods)), key=lambda i: (-(fronts["Pareto"][i] or 0), methods[i].casefold()))
    rows: list[tuple[Value, ...]] = [(methods[i], *(counts[i] for counts in fronts.values())) for i in order]
    return Table("Pareto frontiers", tuple(Column(name) for name in ("Method", *fronts)), tuple(rows))


def pareto_columns(results: BenchmarkResults, higher_is_better: Mapping[str, bool]) -> dict[str, list[int | None]]:
    """Return the counts of cells by heading: "Pareto", and "Pareto (1 se)" where standard errors are there.

    A method of which nothing is known yet has None.
    """
    chosen = results.ranked
    signs = [-1.0 if up else 1.0 for up in higher_is_better.values()]
    losses: Float64 = np.stack(
        [sign * results.metric(name)[:, chosen] for name, sign in zip(higher_is_better, signs, strict=True)], axis=2
    )
    errors = results.errors(list(higher_is_better))
    columns = {"Pareto": pareto_counts(losses)}
    if errors is not None:
        columns["Pareto (1 se)"] = pareto_counts(losses, standard_errors=errors[:, chosen])
    missing = np.atleast_1d(np.isnan(losses).all(axis=(0, 2)) & ~results.failures[:, chosen].any(axis=0))
    return {
        name: [None if missing[i] else int(count) for i, count in enumerate(counts)] for name, counts in columns.items()
    }
