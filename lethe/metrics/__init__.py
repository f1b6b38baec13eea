"""Metrics of machine unlearning: pure functions of arrays, and the registry that describes them.

`score` is the metric that ranks; `evaluate` computes any of the others with its references. Names are loaded when they
are asked for: the scorer's compiled loops take half a second to import, and the names of its attacks nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lethe.metrics.core.array_catalogue import CaptureLevel, Side
    from lethe.metrics.core.inputs import Inputs
    from lethe.metrics.core.invalid_input import InvalidMetricInput, MissingArray, UnknownMetric
    from lethe.metrics.core.metric_evaluation import MetricEvaluation, evaluate
    from lethe.metrics.core.registry import Direction, Metric, Resampling, Scope, metric, metrics
    from lethe.metrics.core.result import MetricResult
    from lethe.metrics.scoring.score import ModelOutputs, Score, score

_MODULES = {
    "core.array_catalogue": ("CaptureLevel", "Side"),
    "core.inputs": ("Inputs",),
    "core.invalid_input": ("InvalidMetricInput", "MissingArray", "UnknownMetric"),
    "core.metric_evaluation": ("MetricEvaluation", "evaluate"),
    "core.registry": ("Direction", "Metric", "Resampling", "Scope", "metric", "metrics"),
    "core.result": ("MetricResult",),
    "scoring.score": ("ModelOutputs", "Score", "score"),
}

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
    """Load what is asked for."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"lethe.metrics.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
