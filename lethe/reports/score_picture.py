"""The image of a score: how epsilon is spread, and the hardest and the easiest forget examples."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.score import ModelOutputs, Score

UNLEARNED = "#0072b2"
RETRAINED = "#d55e00"


def draw_score(score: Score, unlearned: ModelOutputs, retrained: ModelOutputs) -> Figure:
    """Return a figure of three panels. Hardest and easiest are the examples of largest and smallest epsilon."""
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


def save_picture(path: Path, score: Score, unlearned: ModelOutputs, retrained: ModelOutputs) -> None:
    """Write the figure; the suffix of `path` chooses the format.

    Raises InvalidScoreInput, naming the file, if it cannot be written.
    """
    figure = draw_score(score, unlearned, retrained)
    try:
        with mpl.rc_context({"svg.hashsalt": "lethe"}):
            figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise InvalidScoreInput(f"the picture cannot be written to {path}: {error}") from error


def _epsilons(axes: Axes, score: Score) -> None:
    capped = score.epsilon >= score.cap
    shown = score.epsilon[~capped]
    top = max(1.0, float(shown.max(initial=0.0)))
    axes.hist(shown, bins=list(np.arange(0.0, top + 0.5, 0.5)), color=UNLEARNED, edgecolor="white", linewidth=0.5)
    axes.set_title(f"F = {score.forgetting_quality:.4f}; {int(capped.sum())} examples at the cap")
    axes.set_xlabel("epsilon per forget example (nats)")
    axes.set_ylabel("examples")


def _distributions(axes: Axes, unlearned: np.ndarray, retrained: np.ndarray) -> None:
    both = np.concatenate([unlearned, retrained])
    low, high = float(both.min()), float(both.max())
    edges = list(np.linspace(low, high if high > low else low + 1.0, 41))
    axes.hist(unlearned, bins=edges, color=UNLEARNED, alpha=0.6, label="unlearned")
    axes.hist(retrained, bins=edges, color=RETRAINED, alpha=0.6, label="retrained")
    axes.set_xlabel("logit-scaled confidence")
