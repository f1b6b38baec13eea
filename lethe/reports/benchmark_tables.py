"""The tables of a benchmark's results."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from lethe.benchmark.results import RETAIN_UTILITY, BenchmarkResults, benchmark_results, higher_is_better
from lethe.benchmark.store import TUNED
from lethe.metrics.benchmark.rankings import N_GROUPS, dense_ranks, pareto_counts, ranking_groups
from lethe.metrics.benchmark.training_choices import epsilon_correlation
from lethe.metrics.core.arrays import Float64, Int64
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.reports.split_ranking_table import left_out, ranking_note, split_ranking_tables
from lethe.reports.table import FAILED, Column, Table, Value

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


COLUMNS = {
    "RA": "retain_accuracy",
    "FA": "forget_accuracy",
    "TA": "test_accuracy",
    "RR": "retain_retention",
    "FR": "forget_retention",
    "TR": "test_retention",
    "RetDev": "retdev",
    "Indisc": "indiscernibility",
    "T-MIA": "umia",
    "RTE": "rte",
    "RTE cpu": "rte_cpu",
    "RTE work": "rte_work",
}


def performance_table(results: BenchmarkResults, cell: str) -> Table:
    """Return the table of a cell, methods in the order of the results.

    The values are read under the names in `COLUMNS`. RTE: by the clock, as in the paper; RTE cpu: by processor
    time; RTE work: by examples that pass through networks, the same on every machine. A failed method has F throughout.
    Raises InvalidMetricInput for an unknown cell. Source: Cadet et al. 2024 (arXiv:2410.01276), table IV.
    """
    if cell not in results.cells:
        raise InvalidMetricInput(f"no cell is called {cell!r}; there are {', '.join(results.cells)}")
    row = results.cells.index(cell)
    values = [results.metric(metric)[row] for metric in COLUMNS.values()]
    failed = results.failures[row]
    rows: list[tuple[Value, ...]] = [
        (method, *(FAILED if failed[i] else float(column[i]) for column in values))
        for i, method in enumerate(results.methods)
    ]
    return Table(cell, (Column("Method"), *(Column(name) for name in COLUMNS)), tuple(rows))


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


OWN_COLUMNS = frozenset({"retdev", "umia", "indiscernibility", "rte"})  # of the performance table
FIRST = ("f", "score")
HARDEST = 15


def benchmark_tables(content: Mapping[str, Any], *, groups: bool = False) -> Iterator[Table]:
    """Yield the tables of every cell, then those over all cells; `groups`: only the latter."""
    results = benchmark_results(dict(content))
    if not groups:
        for cell in results.cells:
            yield performance_table(results, cell)
            yield metric_table(content, results, cell)
            yield from correlation_tables(content, cell)
    yield from tuning_tables(content)
    yield from ranking_tables(content, results)


def ranking_tables(content: Mapping[str, Any], results: BenchmarkResults) -> Iterator[Table]:
    """Yield ranking groups, Pareto counts and ranks over splits of the methods that were tuned alike.

    One cell ranks nothing, and the only table says so.
    """
    if len(results.cells) < 2:
        yield Table("Ranking of methods", (Column("None"),), (("one cell says nothing of the order of methods",),))
        return
    note = ranking_note(content)
    compared = replace(results, references=(*left_out(content), *results.references))
    directions = {name: higher_is_better(name) for name in content["tables"]["groups"]}
    for metric in FIRST:
        yield from split_ranking_tables(content, compared, metric, note=note)
    yield _noted(ranking_table(compared, directions), note)
    pareto = {name: higher_is_better(name) for name in content["tables"]["pareto"]}
    yield _noted(pareto_table(compared, pareto), note)
    for name, up in directions.items():
        yield _noted(group_mean_table(compared, name, higher_is_better=up), note)


def _noted(table: Table, note: str) -> Table:
    return replace(table, title=table.title + note)


def tuning_tables(content: Mapping[str, Any]) -> Iterator[Table]:
    """Yield what the search of tuned methods cost, chose and gained on fresh runs: once for cells with the same."""
    cells_of: dict[tuple[tuple[Value, ...], ...], list[str]] = {}
    columns: tuple[Column, ...] = ()
    for cell, found in content["cells"].items():
        facts = {name: row.get("tuning", {}) for name, row in found["rows"].items()}
        tuned = {name: each for name, each in facts.items() if each.get("state") == TUNED}
        if not tuned:
            continue
        objective = next(iter(tuned.values()))["objective"]
        columns = (
            Column("Method"), Column("trials"), Column("work, epochs", 1), Column("processor s", 1),
            Column(f"{objective}, own constants", 3), Column(f"{objective}, chosen", 3), Column("chosen constants"),
        )  # fmt: skip
        rows: list[tuple[Value, ...]] = []
        for name, each in tuned.items():
            chosen = " ".join(f"{key}={_short(value)}" for key, value in each["settings"].items())
            cost = (each["trials"], each["work_epochs"], each["cpu_time_s"])
            rows.append((name, *cost, each["own_fresh"], each["fresh"], chosen))
        cells_of.setdefault(tuple(rows), []).append(cell)
    for shared, cells in cells_of.items():
        yield Table(f"{', '.join(cells)}: tuning on another split, scores of fresh runs", columns, shared)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def metric_table(content: Mapping[str, Any], results: BenchmarkResults, cell: str) -> Table:
    """Return a row per method: F and score with 95 % intervals, then every other metric that was asked for."""
    asked = [request["id"] for request in content["metrics"]]
    names = [name for name in (*FIRST, *asked) if name in asked and name not in OWN_COLUMNS]
    names += [RETAIN_UTILITY] if RETAIN_UTILITY in results.values else []
    names = list(dict.fromkeys(names))
    rows: list[tuple[Value, ...]] = []
    for method in results.methods:
        row = content["cells"][cell]["rows"].get(method)
        rows.append((method, *(_shown(row, name) for name in names)))
    return Table(f"{cell}: metrics", (Column("Method"), *(Column(name, 3) for name in names)), tuple(rows))


def _shown(row: Mapping[str, Any] | None, name: str) -> Value:
    if row is None:
        return None
    if row.get("failure"):
        return FAILED
    found = row["values"].get(name)
    if found is None or found["value"] is None:
        return None
    interval = found.get("interval")
    if name in FIRST and interval:
        return f"{found['value']:.3f} [{interval[0]:.3f}, {interval[1]:.3f}]"
    return float(found["value"])


def correlation_tables(content: Mapping[str, Any], cell: str) -> Iterator[Table]:
    """Yield Spearman's correlation of metrics over methods, and what epsilon says of hard examples, where known."""
    results = benchmark_results(dict(content))
    row = results.cells.index(cell)
    names = [request["id"] for request in content["metrics"] if request["id"] in results.values]
    if not names:
        return  # nothing has been computed yet
    values = np.stack([results.metric(name)[row][results.ranked] for name in names], axis=1)
    matrix = _spearman(values)
    rows = tuple((name, *(float(value) for value in line)) for name, line in zip(names, matrix, strict=True))
    yield Table(f"{cell}: Spearman over methods", (Column("Metric"), *(Column(name) for name in names)), rows)
    epsilon = epsilon_by_method(content, cell)
    if len(epsilon) < 2:
        return
    try:
        found = epsilon_correlation(np.stack(list(epsilon.values())))
    except InvalidMetricInput:
        return
    chance = -(-len(next(iter(epsilon.values()))) // 10) / len(next(iter(epsilon.values())))
    overlap = found.table["mean_top_decile_overlap"]
    facts: tuple[tuple[Value, ...], ...] = (
        ("mean Spearman of epsilon over pairs of methods", found.value),
        ("mean overlap of the hardest tenth", float(overlap) if isinstance(overlap, int | float) else None),
        ("overlap by chance", chance),
    )
    yield Table(f"{cell}: hard examples", (Column("Quantity"), Column("Value")), facts)
    yield hardest_table(content, cell, epsilon)


def hardest_table(content: Mapping[str, Any], cell: str, epsilon: Mapping[str, Any]) -> Table:
    """Return the forget examples with the greatest sum of epsilon over methods, clipped at ceil(ln(N - 1)).

    Source: Triantafillou et al. 2024, appendix A.9, figure 14.
    """
    total = np.minimum(np.stack(list(epsilon.values())), epsilon_clip(content)).sum(axis=0)
    order = np.argsort(-total, kind="stable")[:HARDEST]
    rows = tuple((str(int(i)), float(total[i]), float(total[i] / len(epsilon))) for i in order)
    return Table(f"{cell}: hardest examples", (Column("Forget example"), Column("Sum"), Column("Mean")), rows)


def epsilon_clip(content: Mapping[str, Any]) -> float:
    """Return where epsilon is clipped when methods are compared: the least whole number that N models can reach."""
    return float(np.ceil(np.log(max(2, int(content["n_models"]) - 1))))


def epsilon_by_method(content: Mapping[str, Any], cell: str) -> dict[str, Any]:
    """Return epsilon [S] of every method of a cell that has it."""
    names = [method["name"] for method in content["methods"]]
    rows = content["cells"][cell]["rows"]
    return {name: np.asarray(rows[name]["epsilon"]) for name in names if rows.get(name, {}).get("epsilon")}


def _spearman(values: Any) -> Any:
    from scipy.stats import spearmanr  # noqa: PLC0415  slow to import, needed here alone

    n = values.shape[1]
    matrix = np.eye(n)
    for i in range(n):
        for j in range(i):
            both = ~np.isnan(values[:, [i, j]]).any(axis=1)
            a, b = values[both, i], values[both, j]
            constant = both.sum() < 3 or a.min() == a.max() or b.min() == b.max()
            matrix[i, j] = matrix[j, i] = np.nan if constant else spearmanr(a, b).statistic
    return matrix
