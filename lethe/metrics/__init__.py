"""Metrics of machine unlearning: pure functions of arrays, and the registry that describes them.

`score` is the metric that ranks; `evaluate` computes any of the others with its references.
"""

from typing import TYPE_CHECKING, Any

from lethe.metrics.core.array_catalogue import CaptureLevel, Side
from lethe.metrics.core.inputs import Inputs
from lethe.metrics.core.invalid_input import InvalidMetricInput, MissingArray, UnknownMetric
from lethe.metrics.core.metric_evaluation import MetricEvaluation, evaluate
from lethe.metrics.core.registry import Direction, Metric, Resampling, Scope, metric, metrics
from lethe.metrics.core.result import MetricResult

if TYPE_CHECKING:
    from lethe.metrics.scoring.score import ModelOutputs, Score, score

_SCORING = ("ModelOutputs", "Score", "score")

__all__ = [
    "CaptureLevel",
    "Direction",
    "Inputs",
    "InvalidMetricInput",
    "Metric",
    "MetricEvaluation",
    "MetricResult",
    "MissingArray",
    "ModelOutputs",
    "Resampling",
    "Scope",
    "Score",
    "Side",
    "UnknownMetric",
    "evaluate",
    "metric",
    "metrics",
    "score",
]


def __getattr__(name: str) -> Any:
    """Load the scorer when it is asked for: its compiled loops take half a second to import."""
    if name not in _SCORING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lethe.metrics.scoring import score as module  # noqa: PLC0415

    return getattr(module, name)
