"""Figures of benchmarks, scores and metrics. They are matplotlib's; extra `plots`."""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lethe.benchmark.results import RETAIN_UTILITY, BenchmarkResults, benchmark_results, higher_is_better
from lethe.benchmark.store import TUNED
from lethe.errors import InvalidInput
from lethe.metrics.benchmark.rankings import pareto_frontier
from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.reports.benchmark_tables import epsilon_by_method, epsilon_clip
from lethe.reports.split_ranking_table import left_out, mean_ranks, probable_ranks, ranked_over_splits, same_task_cells

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from lethe.metrics.core.metric_evaluation import MetricEvaluation
    from lethe.metrics.scoring.score import ModelOutputs, Score

ROW_HEIGHT_INCHES = 0.75


def draw_metrics(evaluations: "Mapping[str, MetricEvaluation]") -> "Figure":
    """Return a figure with one row per metric that has a value, each on its own scale."""
    from matplotlib.figure import Figure  # noqa: PLC0415  slow to import, needed here alone

    shown = {name: found for name, found in evaluations.items() if found.result and np.isfinite(found.result.value)}
    figure = Figure(figsize=(7.0, ROW_HEIGHT_INCHES * max(1, len(shown))), layout="constrained")
    axes = figure.subplots(max(1, len(shown)), 1, squeeze=False)[:, 0]
    for row, (name, found) in zip(axes, shown.items(), strict=False):
        row.set_yticks([])
        row.set_ylabel(f"{name}\n({found.metric.direction})", rotation=0, ha="right", va="center", fontsize=7)
        if found.result is not None and found.result.interval is not None:
            row.plot(found.result.interval, (0.0, 0.0), color="tab:blue", linewidth=3, alpha=0.4)
        for label, marker, colour, result in (
            ("unlearned", "o", "tab:blue", found.result),
            ("exact retraining", "|", "tab:green", found.oracle),
            ("original", "x", "tab:red", found.original),
        ):
            if result is not None:
                row.plot([result.value], [0.0], marker, color=colour, label=label, markersize=9)
    axes[0].legend(fontsize=7, ncols=3, loc="lower left", bbox_to_anchor=(0.0, 1.0))
    return figure


UNLEARNED = "#0072b2"
RETRAINED = "#d55e00"


def draw_score(score: "Score", unlearned: "ModelOutputs", retrained: "ModelOutputs") -> "Figure":
    """Return a figure of three panels. Hardest and easiest are the examples of largest and smallest epsilon."""
    from matplotlib.figure import Figure  # noqa: PLC0415  slow to import, needed here alone

    figure = Figure(figsize=(12, 3.6), layout="constrained")
    spread, hardest, easiest = figure.subplots(1, 3)
    _epsilons(spread, score)
    for axes, name, example in (
        (hardest, "hardest", int(np.argmax(score.epsilon))),
        (easiest, "easiest", int(np.argmin(score.epsilon))),
    ):
        _distributions(
            axes, np.asarray(unlearned.confidences)[:, example], np.asarray(retrained.confidences)[:, example]
        )
        axes.set_title(f"{name}: example {example}, epsilon {score.epsilon[example]:.2f}")
    easiest.legend(frameon=False)
    return figure


def save_picture(path: Path, score: "Score", unlearned: "ModelOutputs", retrained: "ModelOutputs") -> None:
    """Write the figure; the suffix of `path` chooses the format.

    Raises InvalidScoreInput, naming the file, if it cannot be written.
    """
    import matplotlib as mpl  # noqa: PLC0415  slow to import, needed here alone

    figure = draw_score(score, unlearned, retrained)
    try:
        with mpl.rc_context({"svg.hashsalt": "lethe"}):
            figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise InvalidScoreInput(f"the picture cannot be written to {path}: {error}") from error


def _epsilons(axes: "Axes", score: "Score") -> None:
    capped = score.epsilon >= score.cap
    shown = score.epsilon[~capped]
    top = max(1.0, float(shown.max(initial=0.0)))
    axes.hist(shown, bins=list(np.arange(0.0, top + 0.5, 0.5)), color=UNLEARNED, edgecolor="white", linewidth=0.5)
    axes.set_title(f"F = {score.forgetting_quality:.4f}; {int(capped.sum())} examples at the cap")
    axes.set_xlabel("epsilon per forget example (nats)")
    axes.set_ylabel("examples")


def _distributions(axes: "Axes", unlearned: np.ndarray, retrained: np.ndarray) -> None:
    both = np.concatenate([unlearned, retrained])
    low, high = float(both.min()), float(both.max())
    edges = list(np.linspace(low, high if high > low else low + 1.0, 41))
    axes.hist(unlearned, bins=edges, color=UNLEARNED, alpha=0.6, label="unlearned")
    axes.hist(retrained, bins=edges, color=RETRAINED, alpha=0.6, label="retrained")
    axes.set_xlabel("logit-scaled confidence")


METRIC = "f"


def ranks(axes: "Axes", content: Mapping[str, Any], results: BenchmarkResults, cells: Sequence[str]) -> None:  # noqa: ARG001
    """Draw each method's mean rank and the ranks that hold 90 % of its probability; a colour is its first letter."""
    ranked = ranked_over_splits(results, cells, METRIC)
    if ranked is None:
        axes.text(0.5, 0.5, "ranks need two splits and two methods", ha="center", transform=axes.transAxes)
        return
    for place, i in enumerate(ranked.order):
        probability = ranked.found.rank_probability[i]
        colour = f"C{(ord(ranked.found.letters[i][0]) - ord('a')) % 10}"
        axes.plot(probable_ranks(probability), [place, place], "-", color=colour, linewidth=2)
        axes.plot(mean_ranks(ranked.found)[i], place, "o", color=colour, markersize=4)
    axes.set_yticks(range(len(ranked.order)), [ranked.methods[i] for i in ranked.order], fontsize=6)
    axes.invert_yaxis()
    axes.set_xlabel(f"rank by {METRIC} over {len(cells)} splits: mean, and the ranks that hold 90 %")


def tuned(axes: "Axes", content: Mapping[str, Any], results: BenchmarkResults, cells: Sequence[str]) -> None:  # noqa: ARG001
    """Draw the objective of each method's own constants and of the chosen ones, on fresh runs of the search's split."""
    facts = {name: row.get("tuning", {}) for name, row in content["cells"][cells[0]]["rows"].items()}
    pairs = {
        name: (found["own_fresh"], found["fresh"])
        for name, found in facts.items()
        if found.get("state") == TUNED and None not in (found["own_fresh"], found["fresh"])
    }
    if not pairs:
        axes.text(0.5, 0.5, "no method was tuned", ha="center", transform=axes.transAxes)
        return
    names = sorted(pairs, key=lambda name: -pairs[name][1])
    own, chosen = np.array([pairs[name] for name in names]).T
    axes.hlines(range(len(names)), own, chosen, color="0.7", linewidth=1)
    axes.plot(own, range(len(names)), "o", color="0.5", markersize=4, label="own constants")
    axes.plot(chosen, range(len(names)), "o", color="tab:blue", markersize=4, label="tuned")
    axes.set_yticks(range(len(names)), names, fontsize=6)
    axes.invert_yaxis()
    axes.set_xlabel(f"{facts[names[0]]['objective']} of fresh runs on the split of the search")
    axes.legend(fontsize=6)


CELL_INCHES = (6.0, 4.2)
N_COLOURS = 10  # that are easily distinguished; further methods have other signs
METHOD_SIGNS = ("o", "^", "D", "v")
MIN_SIGN = 14.0  # square points
Content = Mapping[str, Any]


def draw(content: Content, kind: str) -> "Figure":
    """Return a figure with a picture per cell, or per task for `ranks` and `tuned`.

    Raises InvalidInput for an unknown kind, naming those there are.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415  slow to import, needed here alone

    if kind not in KINDS:
        raise InvalidInput(f"there is no plot {kind!r}; there are {', '.join(KINDS)}")
    results = benchmark_results(dict(content))
    compared = replace(results, references=(*left_out(content), *results.references))
    panels = same_task_cells(content) if kind in OF_TASKS else [[cell] for cell in results.cells]
    figure = Figure(figsize=(CELL_INCHES[0], CELL_INCHES[1] * len(panels)), layout="constrained")
    for axes, cells in zip(figure.subplots(len(panels), 1, squeeze=False)[:, 0], panels, strict=True):
        axes.set_title(", ".join(cells), fontsize=9)
        if kind in OF_TASKS:
            OF_TASKS[kind](axes, content, compared, cells)
        else:
            OF_CELLS[kind](axes, content, results, cells[0])
    return figure


def save(figure: "Figure", path: Path) -> None:
    """Write the figure; the suffix of the file is its format. Raises InvalidInput for one that cannot be written."""
    try:
        figure.savefig(path, dpi=150)
    except ValueError as error:
        raise InvalidInput(f"{path}: {error}") from error


def as_svg(figure: "Figure") -> str:
    """Return the figure as an <svg> element for a page."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return re.sub(r"^.*?(?=<svg)", "", text.getvalue(), count=1, flags=re.DOTALL)


def _pareto(axes: "Axes", content: Content, results: BenchmarkResults, cell: str) -> None:
    x, y = content["tables"]["pareto"][:2]
    _scatter(axes, results, cell, x, y)
    row = results.cells.index(cell)
    signs = [-1.0 if higher_is_better(name) else 1.0 for name in (x, y)]
    points = np.stack([results.metric(name)[row][results.ranked] for name in (x, y)], axis=1)
    front = points[pareto_frontier(points * signs)]
    front = front[np.argsort(front[:, 0])]
    axes.plot(front[:, 0], front[:, 1], "-", color="tab:blue", linewidth=1, alpha=0.5)


def _scores(axes: "Axes", content: Content, results: BenchmarkResults, cell: str) -> None:  # noqa: ARG001
    _scatter(axes, results, cell, "accuracy_gap" if "accuracy_gap" in results.values else "retdev", "f")


def _scatter(axes: "Axes", results: BenchmarkResults, cell: str, x: str, y: str) -> None:
    row = results.cells.index(cell)
    for i, method in enumerate(results.methods):
        reference = method in results.references
        point = results.metric(x)[row, i], results.metric(y)[row, i]
        if np.isfinite(point).all():
            axes.plot(*point, "s" if reference else "o", color="tab:green" if reference else "tab:blue", markersize=4)
            axes.annotate(method, point, fontsize=6, xytext=(3, 2), textcoords="offset points")
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def _forgetting(axes: "Axes", content: Content, results: BenchmarkResults, cell: str) -> None:
    row = results.cells.index(cell)
    values = results.metric("f")[row]
    order = [i for i in np.argsort(-values) if np.isfinite(values[i])]
    names = [results.methods[i] for i in order]
    rows = content["cells"][cell]["rows"]
    intervals = [
        rows[name]["values"]["f"].get("interval") or [value] * 2
        for name, value in zip(names, values[order], strict=True)
    ]
    ends = np.abs(np.asarray(intervals, dtype=np.float64).T - values[order]).reshape(2, -1)
    colours = ["tab:green" if name in results.references else "tab:blue" for name in names]
    axes.barh(range(len(order)), values[order], xerr=ends, color=colours, ecolor="0.4")
    axes.set_yticks(range(len(order)), names, fontsize=6)
    axes.invert_yaxis()
    axes.set_xlabel("forgetting quality F, 95 % interval")


def _hardness(axes: "Axes", content: Content, results: BenchmarkResults, cell: str) -> None:  # noqa: ARG001
    epsilon = epsilon_by_method(content, cell)
    if not epsilon:
        axes.text(0.5, 0.5, "no epsilon is stored", ha="center")
        return
    mean = np.sort(np.minimum(np.stack(list(epsilon.values())), epsilon_clip(content)).mean(axis=0))[::-1]
    axes.bar(range(len(mean)), mean, width=1.0)
    axes.set_xlabel("forget examples, hardest first")
    axes.set_ylabel("mean epsilon over methods, nats")


def _utility(axes: "Axes", content: Content, results: BenchmarkResults, cell: str) -> None:
    """Draw forget quality against model utility; a line joins a method's rows in the order of their epochs.

    Source: Maini et al. 2024 (TOFU), figures 3 and 4.
    """
    rows = content["cells"][cell]["rows"]
    epochs = {method["name"]: method["constants"].get("EPOCHS", 0) for method in content["methods"]}
    of_method: dict[str, list[str]] = {}
    for method in content["methods"]:
        of_method.setdefault(method["id"] or method["name"], []).append(method["name"])
    for number, (method_id, names) in enumerate(of_method.items()):
        sign, colour = METHOD_SIGNS[number // N_COLOURS % len(METHOD_SIGNS)], f"C{number % N_COLOURS}"
        _trajectory(axes, rows, sorted(names, key=epochs.__getitem__), label=method_id, sign=sign, colour=colour)
    for name, sign in zip(results.references, "*X", strict=True):
        _trajectory(axes, rows, [name], label=name, sign=sign, colour="black")
    axes.axhline(np.log10(0.05), color="0.6", linewidth=0.8, linestyle="--")
    axes.set_xlabel("model utility; larger signs: more epochs")
    axes.set_ylabel("forget quality, log10 p; dashed: p = 0.05")
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize=6)
    else:
        axes.text(0.5, 0.5, "no forget quality is stored", ha="center", transform=axes.transAxes)


def _trajectory(axes: "Axes", rows: Content, names: Sequence[str], *, label: str, sign: str, colour: str) -> None:
    known = []
    for name in names:
        utility, quality = _value(rows, name, "model_utility"), _value(rows, name, "forget_quality")
        if utility is None:  # without pretraining
            utility = _value(rows, name, RETAIN_UTILITY)
        if utility is not None and quality is not None:
            known.append((utility, quality))
    if known:
        x, y = zip(*known, strict=True)
        axes.plot(x, y, "-", linewidth=1, alpha=0.6, color=colour)
        sizes = MIN_SIGN * np.arange(1, len(known) + 1)
        axes.scatter(x, y, s=sizes, marker=sign, color=colour, label=label)


def _value(rows: Content, name: str, metric: str) -> float | None:
    found: float | None = rows.get(name, {}).get("values", {}).get(metric, {}).get("value")
    return found


OF_CELLS: dict[str, Callable[["Axes", Content, BenchmarkResults, str], None]] = {
    "pareto": _pareto,
    "scatter": _scores,
    "forgetting": _forgetting,
    "hardness": _hardness,
    "utility": _utility,
}
OF_TASKS: dict[str, Callable[["Axes", Content, BenchmarkResults, Sequence[str]], None]] = {
    "ranks": ranks,
    "tuned": tuned,
}
KINDS = (*OF_CELLS, *OF_TASKS)


def fitting_kinds(content: Content) -> list[str]:
    """Return the figures of which a benchmark has the metrics, splits and searches; `utility` is of language models."""
    asked = {request["id"] for request in content["metrics"]}
    rows = [row for cell in content["cells"].values() for row in cell["rows"].values()]
    unfit = {
        "utility": "forget_quality" not in asked,
        "ranks": max(map(len, same_task_cells(content))) < 2 or "f" not in asked,
        "tuned": not any(row.get("tuning", {}).get("state") == TUNED for row in rows),
    }
    return [kind for kind in KINDS if not unfit.get(kind)]
