"""An image of metrics: each with its interval, beside the oracle and the original."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from lethe.metrics.core.metric_evaluation import MetricEvaluation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW_HEIGHT_INCHES = 0.75


def draw_metrics(evaluations: Mapping[str, MetricEvaluation]) -> "Figure":
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
