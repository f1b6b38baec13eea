"""`lethe.benchmark(...)` and its result."""

import time
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lethe.benchmark.plan import read_plan
from lethe.benchmark.results import benchmark_results, collect, read_results
from lethe.benchmark.store import BenchmarkFolder
from lethe.reports.benchmark_tables import benchmark_tables
from lethe.reports.table import Table, html_table, json_text, written
from lethe.reports.tidy_benchmark import COLUMNS, csv_text, latex_text, tidy_rows

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from lethe.benchmark.execution import Say


class BenchmarkResult:
    """Methods x cells. content: the document of `to_json`, described by docs/schemas/benchmark.json."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.content = dict(content)

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the names of the cells."""
        return benchmark_results(self.content).cells

    @property
    def methods(self) -> tuple[str, ...]:
        """Return the names of the methods, without the references."""
        return tuple(method["name"] for method in self.content["methods"])

    def tables(self) -> list[Table]:
        """Return the tables that `lethe benchmark table` prints."""
        return list(benchmark_tables(self.content))

    def to_frame(self) -> "pd.DataFrame":
        """Return a data frame with a row for each cell, method and metric, all digits. Needs pandas."""
        import pandas as pd

        return pd.DataFrame(tidy_rows(self.content), columns=list(COLUMNS))

    def to_json(self, path: str | Path | None = None) -> str:
        """Return everything as JSON, and write it to a file if one is named; `lethe benchmark table` reads it."""
        return written(json_text(self.content), path)

    def to_csv(self, path: str | Path | None = None) -> str:
        """Return the rows of `to_frame` as CSV, and write them to a file if one is named."""
        return written(csv_text(self.content), path)

    def to_latex(self, path: str | Path | None = None, *, all_digits: bool = False) -> str:
        """Return a table per cell for LaTeX (booktabs): value +- half of the 95 % interval, the best in bold.

        all_digits: as many as the numbers have, instead of two of the interval.
        """
        return written(latex_text(self.content, all_digits=all_digits), path)

    def plot(self, kind: str = "pareto") -> "Figure":
        """Return a figure with a picture per cell: pareto, scatter, forgetting, hardness or utility. Needs `plots`."""
        from lethe.reports.benchmark_figures import draw

        return draw(self.content, kind)

    def __repr__(self) -> str:
        size = f"{len(self.methods)} methods x {len(self.cells)} cells"
        return f"BenchmarkResult({self.content['slug']!r}, {size}, n_models={self.content['n_models']})"

    def _repr_html_(self) -> str:
        tables = (
            (html_table([column.name for column in table.columns], map(table.shown, table.rows)), table.title)
            for table in self.tables()
        )
        return "".join(html.replace("<table>", f"<table><caption>{escape(title)}</caption>") for html, title in tables)


def benchmark(
    source: str | Path,
    out: str | Path = "benchmark-results",
    *,
    max_hours: float | None = None,
    device: str = "cpu",
    say: "Say | None" = None,
) -> BenchmarkResult:
    """Return a benchmark's results. What is missing is computed first; what is there is not computed again.

    source: a benchmark file (.toml), or a report (.html, .json) that is only read. out: the folder of results.
    max_hours: stop after so many; call it again to go on. device: where models are trained. say: called with a line of
    text for each step, such as `print`.
    Raises InvalidBenchmarkFile naming what is wrong in the file, UnfinishedBenchmark naming what could not be computed.
    Methods run in child processes, without a sandbox: `lethe benchmark run` has one in a checkout. Needs the extra
    `torch`.
    """
    path = Path(source)
    if path.suffix != ".toml":
        return BenchmarkResult(read_results(path))
    from lethe.benchmark.execution import Execution
    from lethe.benchmark.method_runs import child_runs

    plan, folder = read_plan(path), BenchmarkFolder(Path(out))
    until = None if max_hours is None else time.monotonic() + 3600 * max_hours
    Execution(plan, folder, child_runs, say or _silent, until=until, device=device).run()
    return BenchmarkResult(collect(plan, folder))


def _silent(text: str) -> None:
    """Say nothing."""
