"""Figures of one task: ranks over its splits with their spread, and each method with and without tuning."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lethe.benchmark.benchmark_results import BenchmarkResults
from lethe.benchmark.tuned_methods import TUNED
from lethe.reports.split_ranking_table import mean_ranks, probable_ranks, ranked_over_splits

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
