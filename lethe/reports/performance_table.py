"""One cell's table: accuracies, retention, RetDev, indiscernibility, attack and time of every method."""

from lethe.benchmark.benchmark_results import BenchmarkResults
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.reports.table import FAILED, Column, Table, Value

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
