"""The page of published results. Every number and sentence of it is made from them, so that it can be made again."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import stdtrit
from scipy.stats import kendalltau

from lethe.benchmark.benchmark_file import TABLE_METRICS
from lethe.benchmark.benchmark_results import BenchmarkResults
from lethe.benchmark.finished_cells import is_finished, only_cells
from lethe.benchmark.metric_keys import REFERENCES
from lethe.benchmark.results import ACCURACIES, benchmark_results, cells_sha256, higher_is_better
from lethe.benchmark.split_ranking import LEVEL, same_task_cells
from lethe.metrics.core.arrays import Float64
from lethe.reports.split_ranking_table import MIN_SPLITS, probable_ranks
from lethe.reports.split_sentences import (
    agreement_sentence,
    contrast_sentence,
    difference_sentence,
    first_sentence,
    ranked_of,
)
from lethe.reports.table import Column, Table, Value

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
