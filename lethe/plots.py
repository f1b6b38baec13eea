"""Figures of results, for notebooks and papers. They are matplotlib's: `figure.savefig("name.pdf")`; extra `plots`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lethe.api.benchmark_result import BenchmarkResult
    from lethe.api.evaluation import Evaluation
    from lethe.api.score_result import ScoreResult


def metrics(evaluation: "Evaluation") -> "Figure":
    """Return one row per metric with its interval, beside the oracle and the original."""
    return evaluation.plot()


def epsilon(score: "ScoreResult") -> "Figure":
    """Return the spread of epsilon over forget examples, and the confidences on the hardest and the easiest."""
    return score.plot()


def benchmark(result: "BenchmarkResult", kind: str = "pareto") -> "Figure":
    """Return a picture per cell: pareto, scatter, forgetting, hardness or utility. Raises InvalidInput for another."""
    return result.plot(kind)
