"""Pages of results, Markdown and HTML, made from the results alone, so that they can be made again."""

import difflib
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtrit
from scipy.stats import kendalltau

from lethe.benchmark.benchmark_file import TABLE_METRICS
from lethe.benchmark.results import (
    ACCURACIES,
    BenchmarkResults,
    benchmark_results,
    cells_sha256,
    higher_is_better,
    is_finished,
    only_cells,
)
from lethe.benchmark.store import REFERENCES
from lethe.metrics.core.arrays import Float64
from lethe.reports.benchmark_figures import as_svg, draw, fitting_kinds
from lethe.reports.benchmark_tables import benchmark_tables
from lethe.reports.split_ranking_table import (
    LEVEL,
    MIN_SPLITS,
    agreement_sentence,
    contrast_sentence,
    difference_sentence,
    first_sentence,
    probable_ranks,
    ranked_of,
    same_task_cells,
)
from lethe.reports.table import Column, Table, Value, html_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Document = Mapping[str, Any]
MISSING = "–"
COLUMNS = {
    "worst": "Worst",
    "power": "Power",
    "power_quarter": "Power, a quarter",
    "false_alarms": "False alarms",
    "drift": "Drift with N",
    "recipe": "Recipe",
    "quantised": "4 bits",
    "robustness": "Robustness",
    "game": "Game",
    "seconds": "CPU s",
}
IN_FIGURE = ("power", "power_quarter", "false_alarms", "recipe", "quantised", "robustness", "game")
LOWER_IS_BETTER = ("false_alarms", "recipe")
ROW_INCHES = 0.2


def ordered(document: Document) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the metrics by their worst criterion, the best first; those without one come last."""

    def rank(item: tuple[str, Mapping[str, Any]]) -> tuple[bool, float, float]:
        criteria = item[1]
        return criteria["worst"] is None, -(criteria["worst"] or 0.0), -(criteria["power_quarter"] or 0.0)

    return sorted(document["metrics"].items(), key=rank)


def meta_table(document: Document) -> str:
    """Return a Markdown table, a row per metric, with the game that fools it most."""
    lines = [
        "| " + " | ".join(("Metric", *COLUMNS.values(), "Fooled by")) + " |",
        "| --- |" + " ---: |" * len(COLUMNS) + " --- |",
    ]
    for name, criteria in ordered(document):
        numbers = [_number(criteria[key]) for key in COLUMNS]
        lines.append("| " + " | ".join((f"`{name}`", *numbers, _fooled_by(criteria))) + " |")
    return "\n".join(lines) + "\n"


def meta_figure(document: Document) -> "Figure":
    """Return a figure: a row per metric, a column per criterion; dark is good, white is not defined."""
    from matplotlib.figure import Figure  # noqa: PLC0415  slow to import, needed here alone

    rows = ordered(document)
    goodness = np.array([[_goodness(key, criteria[key]) for key in IN_FIGURE] for _, criteria in rows])
    figure = Figure(figsize=(6.5, 1.5 + ROW_INCHES * len(rows)), layout="constrained")
    axes = figure.subplots()
    picture = axes.imshow(np.ma.masked_invalid(goodness), cmap="viridis", vmin=0.0, vmax=1.0, aspect="auto")
    axes.set_xticks(range(len(IN_FIGURE)), [COLUMNS[key] for key in IN_FIGURE], rotation=30, ha="right", fontsize=7)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=6)
    figure.colorbar(picture, ax=axes, label="1: as it should be; 0: as it should not")
    return figure


def _goodness(key: str, value: float | None) -> float:
    if value is None:
        return float("nan")
    return float(np.clip(1.0 - abs(value) if key in LOWER_IS_BETTER else value, 0.0, 1.0))


def _number(value: float | None) -> str:
    return MISSING if value is None else f"{round(value, 2) + 0.0:.2f}"


def _fooled_by(criteria: Mapping[str, Any]) -> str:
    games = {name: place for name, place in criteria["games"].items() if place is not None}
    name = min(games, key=lambda game: games[game], default=MISSING)
    return name if games.get(name, 0.0) < 0.5 else "nothing"


Content = Mapping[str, Any]
RANKED_BY = "score"


def published_page(content: Content) -> str:
    """Return the page as Markdown: what was asked, the conditions, a table and sentences for each task."""
    finished = only_cells(content, [name for name in content["cells"] if is_finished(content, name)])
    parts = [f"# Benchmark {content['slug']}", *_intention(content), *_conditions(content, finished)]
    tasks = [only_cells(finished, names) for names in same_task_cells(finished)]
    for task in tasks:
        parts += [f"## {', '.join(task['cells'])}", *_of_task(task)]
    parts += _between(tasks)
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def page_differences(page: str, content: Content) -> list[str]:
    """Return the lines of a page that its results do not give, with a minus, and those that they give, with a plus."""
    found = [line for line in difflib.ndiff(page.splitlines(), published_page(content).splitlines()) if line[0] in "-+"]
    if cells_sha256(content["cells"]) != content["results_sha256"]:
        found.append("- results_sha256: the results are not those that were written")
    return found


def _intention(content: Content) -> Iterator[str]:
    """Yield the comment at the top of the benchmark file, paragraph by paragraph."""
    lines: list[str] = []
    for line in content["benchmark"].splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    yield from "\n".join(lines).split("\n\n") if lines else ()


def _conditions(content: Content, finished: Content) -> Iterator[str]:
    open_cells = [name for name in content["cells"] if name not in finished["cells"]]
    setups = {cell["settings"]["scoring"]["setup"] for cell in finished["cells"].values()}
    own = ", each run from an original model of its own" if setups == {"reuse-n-n"} else ""
    yield (
        f"N = {content['n_models']} models a side{own}; {len(finished['cells'])} of {len(content['cells'])} splits are "
        f"finished" + (f"; not finished: {', '.join(open_cells)}." if open_cells else ".")
    )
    yield from _search(content, finished)
    yield _time(finished)
    versions = ", ".join(f"{name} {number}" for name, number in content["versions"].items())
    yield f"Made at {content['made_at']} on {content['machine']} with {versions}."


def _search(content: Content, finished: Content) -> Iterator[str]:
    if (tune := content["tune"]) is None:
        yield "No constant was searched: this says nothing of the methods."
        return
    facts = [row.get("tuning", {}) for cell in finished["cells"].values() for row in cell["rows"].values()]
    # a search serves several splits, and is counted once
    searches = {str(each): each for each in facts if "cpu_time_s" in each}.values()
    budget = f", {tune['budget_epochs']:g} epochs at most" if tune["budget_epochs"] else ""
    yield (
        f"Constants: {tune['searches']} searches a task, each on a split of its own, up to {tune['trials']} trials by "
        f"{tune['search']}{budget}, objective `{tune['objective']}` on {tune['runs']} runs; the splits take searches "
        f"in turn, so the intervals hold the search's noise. The searches took "
        f"{sum(each['cpu_time_s'] for each in searches) / 3600:.3f} processor hours in their runs."
    )


def _time(finished: Content) -> str:
    cells = list(finished["cells"].values())
    units = [row.get("times") or {} for cell in cells for row in ({"times": cell["times"]}, *cell["rows"].values())]

    def hours(*stages: str) -> str:
        return f"{sum(unit.get(stage, 0.0) for unit in units for stage in stages) / 3600:.3f}"

    return (
        f"Processor hours of the finished splits: {hours('preparation_cpu_s')} to prepare them, "
        f"{hours('metrics_cpu_s')} for metrics. Their runs with their evaluation took "
        f"{hours('unlearning_s', 'evaluation_s')} hours by the clock, and {hours('all_runs_s')} with the starts of "
        f"their processes, beside other work."
    )


def _of_task(task: Content) -> Iterator[str]:
    results = benchmark_results(dict(task))
    yield _table(task, results).markdown()
    n_splits = len(task["cells"])
    if n_splits < 2:
        yield "One split ranks nothing."
        return
    if n_splits < MIN_SPLITS:
        yield f"Fewer than {MIN_SPLITS} splits: not for citing."
    if contrast := task["tables"].get("contrast"):
        yield contrast_sentence(task, contrast[0], contrast[1], RANKED_BY)
    yield f"{difference_sentence(task, RANKED_BY)} {first_sentence(task, RANKED_BY)}"
    yield _orders(task, results).markdown()


def _shown(task: Content) -> list[str]:
    asked = [request["id"] for request in task["metrics"] if request["id"] not in TABLE_METRICS]
    return [name for name in dict.fromkeys(("score", "f", *asked)) if name in asked and name != "klom_closed"]


def _table(task: Content, results: BenchmarkResults) -> Table:
    names = [*_shown(task), *(f"{part}_accuracy" for part in ACCURACIES)]
    ranked = ranked_of(task, RANKED_BY) if len(task["cells"]) > 1 else None
    columns = [Column("Method"), *(Column(name, 3) for name in names), Column("ranks, 90 %"), Column("letters")]
    rows = []
    places = {} if ranked is None else {name: i for i, name in enumerate(ranked.methods)}
    order = [] if ranked is None else [ranked.methods[i] for i in ranked.order]
    others = [name for name in results.methods if name not in places]
    for name in (*order, *others):
        method = results.methods.index(name)
        cells: list[Value] = [_mean(results.metric(metric)[:, method], of=metric) for metric in names]
        tail: tuple[Value, Value] = (None, None)
        if ranked is not None and name in places:
            low, high = probable_ranks(ranked.found.rank_probability[places[name]])
            tail = (f"{low} to {high}", ranked.found.letters[places[name]])
        rows.append((name, *cells, *tail))
    title = f"Means over {len(task['cells'])} splits, the score's with its 95 % interval over splits"
    return Table(title, tuple(columns), tuple(rows))


def _mean(values: Float64, *, of: str) -> Value:
    known = values[~np.isnan(values)]
    if not known.size:
        return None
    if of != RANKED_BY or known.size < 2:
        return float(known.mean())
    reach = float(stdtrit(known.size - 1, 0.975)) * float(known.std(ddof=1)) / np.sqrt(known.size)
    return f"{known.mean():.3f} [{known.mean() - reach:.3f}, {known.mean() + reach:.3f}]"


def _orders(task: Content, results: BenchmarkResults) -> Table:
    """Return whether metrics put the methods in the same order: Kendall's tau of their means."""
    methods = [i for i, name in enumerate(results.methods) if name not in REFERENCES]
    rows: list[tuple[Value, ...]] = []
    for first, second in combinations(_shown(task), 2):
        pair = [
            results.metric(name)[:, methods].mean(axis=0) * (1 if higher_is_better(name) else -1)
            for name in (first, second)
        ]
        known = ~np.isnan(pair).any(axis=0)
        tau, p_value = kendalltau(*(values[known] for values in pair))
        word = "undecided" if np.isnan(p_value) or p_value >= LEVEL else "agree" if tau > 0 else "disagree"
        rows.append((f"{first}, {second}", int(known.sum()), float(tau), float(p_value), word))
    columns = (Column("metrics"), Column("methods"), Column("Kendall's tau"), Column("p", 3), Column("orders"))
    return Table(f"Orders of the methods' means, level {LEVEL:g} for each pair", columns, tuple(rows))


def _between(tasks: Sequence[Content]) -> Iterator[str]:
    known = [task for task in tasks if len(task["cells"]) > 1]
    for first, second in combinations(known, 2):
        names = " and ".join(next(iter(task["cells"])) for task in (first, second))
        yield f"Tasks of {names}: {agreement_sentence(first, second, RANKED_BY)}"


STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a }
table { border-collapse: collapse; font-size: 13px; margin: .5rem 0 1.5rem } .wide { overflow-x: auto }
th, td { padding: .2rem .6rem; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left }
pre { background: #f5f5f5; padding: .8rem; overflow-x: auto; font-size: 12px } svg { max-width: 100%; height: auto }
"""


def report_page(content: Content) -> str:
    """Return the whole page. The results are in it as JSON too, so that tables and checks can be made from it."""
    embedded = results_text(content).replace("</", "<\\/")
    body = "\n".join(_sections(content))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(content["slug"])}</title>'
        f'<style>{STYLE}</style></head><body>\n{body}\n<script type="application/json" id="results">{embedded}</script>'
        "</body></html>\n"
    )


def report_file(content: Content, name: str) -> bytes:
    """Return the results as the file of this name holds them: .json, .json.gz, .md for publishing, or else HTML."""
    if name.endswith(".json.gz"):
        return gzip.compress(results_text(content).encode(), mtime=0)
    if name.endswith(".json"):
        return results_text(content).encode()
    return (published_page(content) if name.endswith(".md") else report_page(content)).encode()


def results_text(content: Content) -> str:
    """Return the results as JSON, which every command that takes a report reads as well."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n"


def _sections(content: Content) -> Iterator[str]:
    yield f"<h1>Benchmark {escape(content['slug'])}</h1>"
    counts = f"{len(content['methods'])} methods, {len(content['cells'])} cells, {content['n_models']} models a side"
    yield f"<p>{counts}. Made at {escape(content['made_at'])}. F: the method failed; —: there is no value.</p>"
    yield "<h2>Tables</h2>"
    for table in benchmark_tables(content):
        shown = html_table([column.name for column in table.columns], map(table.shown, table.rows))
        yield f'<div class="wide"><h3>{escape(table.title)}</h3>{shown}</div>'
    yield "<h2>Figures</h2>"
    yield from (f"<h3>{kind}</h3>{as_svg(draw(content, kind))}" for kind in fitting_kinds(content))
    yield "<h2>Failures and notes</h2>"
    yield from _remarks(content)
    yield "<h2>How to repeat it</h2>"
    yield (
        "<p>Store the file below as benchmark.toml beside the competition files that it names, then run "
        "<code>lethe benchmark run benchmark.toml --out results</code> and "
        "<code>lethe benchmark report benchmark.toml --out results</code>.</p>"
    )
    yield f"<pre>{escape(content['benchmark'])}</pre>"
    yield "<h2>Settings, versions, hashes</h2>"
    settings = {name: cell["settings"] | {"split": cell["split"]} for name, cell in content["cells"].items()}
    yield f"<pre>{escape(json.dumps(settings, indent=1))}</pre>"
    facts = {name: content[name] for name in ("versions", "machine", "benchmark_sha256", "results_sha256")}
    keys = {method["name"]: method["key"] for method in content["methods"]}
    yield f"<pre>{escape(json.dumps(facts | {'methods': keys}, indent=1))}</pre>"


def _remarks(content: Content) -> Iterator[str]:
    remarks: dict[str, list[str]] = {}
    for name, cell in content["cells"].items():
        if cell["failure"]:
            remarks.setdefault(f"cannot be prepared: {cell['failure']}", []).append(name)
        for method, row in cell["rows"].items():
            reasons = [f"F: {row['failure']}"] if row.get("failure") else []
            reasons += [f"{metric}: {reason}" for metric, reason in row.get("not_computed", {}).items()]
            for text in (*reasons, *row.get("notes", ())):
                remarks.setdefault(text, []).append(f"{name}, {method}")
    if not remarks:
        yield "<p>There are none.</p>"
        return
    items = "".join(
        f"<li>{escape(text)} <small>({escape('; '.join(where))})</small></li>" for text, where in remarks.items()
    )
    yield f"<ul>{items}</ul>"
