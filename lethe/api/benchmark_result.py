"""`lethe.benchmark(...)` and its result, also as one long table with all digits, and as LaTeX (booktabs)."""

import math
import time
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lethe.benchmark.plan import read_plan
from lethe.benchmark.results import benchmark_results, collect, higher_is_better, read_results
from lethe.benchmark.store import BenchmarkFolder
from lethe.errors import InvalidInput
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.reports.benchmark_tables import benchmark_tables
from lethe.reports.table import FAILED, MISSING, Table, csv_lines, html_table, json_text, written

COLUMNS = (
    "benchmark", "cell", "method", "is_reference", "n_models", "metric", "value", "low", "high", "standard_deviation",
    "status",
)  # fmt: skip
COMPUTED, METHOD_FAILED, NOT_COMPUTED = "computed", "failed", "not computed"
Content = Mapping[str, Any]
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
        "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", MISSING: "--",
    }
)  # fmt: skip


def tidy_rows(content: Content) -> list[tuple[Any, ...]]:
    """Return a row for each cell, method and metric, in the order of COLUMNS.

    low, high: the ends of the 95 % interval. status: computed, failed (the method), or not computed.
    """
    results = benchmark_results(dict(content))
    asked = dict.fromkeys([*(request["id"] for request in content["metrics"]), *results.values])
    rows = []
    for cell in results.cells:
        for method in results.methods:
            row = content["cells"][cell]["rows"].get(method)
            head = (content["slug"], cell, method, method in results.references, content["n_models"])
            rows += [(*head, name, *_values(row, name)) for name in asked]
    return rows


def _values(row: Mapping[str, Any] | None, name: str) -> tuple[Any, ...]:
    if row is not None and row.get("failure"):
        return None, None, None, None, METHOD_FAILED
    found = (row or {"values": {}})["values"].get(name)
    if found is None or found["value"] is None:
        return None, None, None, None, NOT_COMPUTED
    low, high = found.get("interval") or (None, None)
    return float(found["value"]), low, high, found.get("standard_deviation"), COMPUTED


def csv_text(content: Content) -> str:
    """Return the long table as CSV; an empty cell is a missing value."""
    return "".join(csv_lines([COLUMNS, *(_blank(row) for row in tidy_rows(content))], line_end="\n"))


def wide_csv_text(content: Content, cell: str) -> str:
    """Return one cell's table as CSV: a row per method, a column per metric. Raises InvalidInput for another cell."""
    results = benchmark_results(dict(content))
    if cell not in results.cells:
        raise InvalidInput(f"there is no cell {cell!r}; there are {', '.join(results.cells)}")
    values: dict[str, dict[str, Any]] = {}
    for _, where, method, _, _, metric, value, *_, status in tidy_rows(content):
        if where == cell:
            values.setdefault(method, {})[metric] = FAILED if status == METHOD_FAILED else value
    names = list(next(iter(values.values()), {}))
    rows = [_blank((method, *(found[name] for name in names))) for method, found in values.items()]
    return "".join(csv_lines([("method", *names), *rows], line_end="\n"))


def _blank(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple("" if value is None else value for value in row)


def write_parquet(content: Content, path: Path) -> None:
    """Write the long table as Parquet. Needs the extra `parquet`. Raises InvalidInput if it cannot be written."""
    import pandas as pd
    import pyarrow  # noqa: F401  what pandas writes with

    try:
        pd.DataFrame(tidy_rows(content), columns=list(COLUMNS)).to_parquet(path, engine="pyarrow", index=False)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error}") from error


def latex_text(content: Content, *, all_digits: bool = False) -> str:
    """Return a table per cell: value +- half of the 95 % interval, the best method of a column in bold.

    all_digits: as many as the numbers have, instead of two of the interval.
    """
    return "\n".join(_latex_tables(content, all_digits))


def _latex_tables(content: Content, all_digits: bool) -> Iterator[str]:
    yield "% needs \\usepackage{booktabs}"
    results = benchmark_results(dict(content))
    names = [request["id"] for request in content["metrics"] if request["id"] in results.values]
    for row, cell in enumerate(results.cells):
        rows = content["cells"][cell]["rows"]
        best = {name: _best(results.metric(name)[row][results.ranked], name) for name in names}
        lines = [
            " & ".join(
                (_escaped(method), *(_latex_value(rows.get(method), name, best[name], all_digits) for name in names))
            )
            for method in results.methods
        ]
        n_ranked = len(lines) - len(results.references)
        body = [
            *(f"{line} \\\\" for line in lines[:n_ranked]),
            r"\midrule",
            *(f"{line} \\\\" for line in lines[n_ranked:]),
        ]
        caption = f"{cell}; N = {content['n_models']}; $\\pm$: half of the 95 \\% interval"
        yield "\n".join(
            [
                r"\begin{table}", rf"\caption{{{_escaped(cell)}{caption[len(cell) :]}}}",
                rf"\begin{{tabular}}{{l{'r' * len(names)}}}", r"\toprule",
                " & ".join(("Method", *map(_escaped, names))) + r" \\", r"\midrule", *body, r"\bottomrule",
                r"\end{tabular}", r"\end{table}", "",
            ]
        )  # fmt: skip


def _escaped(text: str) -> str:
    return text.translate(_LATEX)


def _best(values: np.ndarray[Any, Any], name: str) -> float | None:
    """Return the best of the methods' values, None for a metric by which methods cannot be ranked."""
    known = values[np.isfinite(values)]
    try:
        up = higher_is_better(name)
    except (InvalidInput, InvalidMetricInput):
        return None
    if len(known) < 2:
        return None
    return float(known.max() if up else known.min())


def _latex_value(row: Mapping[str, Any] | None, name: str, best: float | None, all_digits: bool) -> str:
    value, low, high, _, status = _values(row, name)
    if value is None:
        return FAILED if status == METHOD_FAILED else MISSING.replace("—", "--")
    half = None if low is None or high is None else (high - low) / 2
    decimals = None if all_digits else _decimals(value, half)
    shown = _positional(value, decimals)
    number = rf"\mathbf{{{shown}}}" if value == best else shown
    return f"${number}$" if half is None else rf"${number} \pm {_positional(half, decimals)}$"


def _positional(number: float, decimals: int | None) -> str:
    """Return a number without an exponent; decimals: None for all of its digits."""
    return np.format_float_positional(number, trim="-") if decimals is None else f"{number:.{decimals}f}"


def _decimals(value: float, half: float | None) -> int:
    """Return how many decimals show two digits of the interval, or else four of the value."""
    size = half if half else value
    if not size or not math.isfinite(size):
        return 3
    return min(6, max(0, (1 if half else 3) - math.floor(math.log10(abs(size)))))


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
    Execution(plan, folder, child_runs, say or (lambda _: None), until=until, device=device).run()
    return BenchmarkResult(collect(plan, folder))
