"""Metrics as JSON, and back to what a comparison of stored results needs."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from lethe.metrics.core.metric_evaluation import MetricEvaluation
from lethe.metrics.core.result import MetricResult

if TYPE_CHECKING:  # it loads the scorer
    from lethe.metrics.comparison import Comparison

JsonObject = dict[str, Any]
FORMAT = "lethe-metrics-1"


def evaluations_as_json(
    evaluations: Mapping[str, MetricEvaluation], *, n_models: int | None = None, examples: bool = False
) -> JsonObject:
    """Return the metrics of one submission; values per example and other large arrays only if `examples`.

    n_models: unlearned models, without which stored metrics cannot be refused a comparison across N.
    """
    return {
        "format": FORMAT,
        "n_models": n_models,
        "metrics": {name: evaluation_as_json(found, examples=examples) for name, found in evaluations.items()},
    }


def evaluation_as_json(evaluation: MetricEvaluation, *, examples: bool = False) -> JsonObject:
    """Return one metric with its references."""
    entry = evaluation.metric
    return {
        "title": entry.title,
        "unit": entry.unit,
        "direction": entry.direction.value,
        "version": entry.version,
        "parameters": _plain(evaluation.parameters.model_dump()),
        "result": result_as_json(evaluation.result, examples=examples),
        "oracle": result_as_json(evaluation.oracle, examples=False),
        "original": result_as_json(evaluation.original, examples=False),
        "not_computed": evaluation.not_computed,
        "reference_notes": list(evaluation.reference_notes),
    }


def comparison_as_json(comparison: "Comparison") -> JsonObject:
    """Return several submissions with what describes them together."""
    return {
        "format": FORMAT,
        "submissions": {
            name: evaluations_as_json(evaluations, examples=False)["metrics"]
            for name, evaluations in comparison.evaluations.items()
        },
        "together": {name: result_as_json(result, examples=True) for name, result in comparison.together.items()},
        "tests": {name: result_as_json(result, examples=True) for name, result in comparison.tests.items()},
        "not_computed": dict(comparison.not_computed),
    }


def result_as_json(result: MetricResult | None, *, examples: bool) -> JsonObject | None:
    """Return one result as plain values; values per example and large arrays only if `examples`."""
    if result is None:
        return None
    found: JsonObject = {
        "value": _plain(result.value),
        "interval": _plain(result.interval),
        "standard_deviation": _plain(result.standard_deviation),
        "per_run": _plain(result.per_run),
        "table": _plain(dict(result.table)),
        "notes": list(result.notes),
    }
    if examples:
        found["per_example"] = _plain(result.per_example)
        found["arrays"] = _plain(dict(result.arrays))
    return found


def _plain(value: Any) -> Any:
    """Return the value in JSON's types; NaN and infinity become null."""
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
