"""The table and the figure of `lethe benchmark meta`, from its JSON."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

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
    if not games:
        return MISSING
    name = min(games, key=lambda game: games[game])
    return name if games[name] < 0.5 else "nothing"
