"""Metrics of one submission as rows of one long table, with all digits."""

import json
import math
from collections.abc import Mapping
from typing import Any

from lethe.metrics.core.metric_evaluation import MetricEvaluation
from lethe.metrics.core.result import MetricResult

COLUMNS = (
    "metric", "parameters", "value", "low", "high", "standard_deviation", "oracle", "original", "unit", "direction",
    "not_computed", "notes",
)  # fmt: skip


def evaluation_rows(evaluations: Mapping[str, MetricEvaluation]) -> list[tuple[Any, ...]]:
    """Return a row per metric, in the order of COLUMNS. low, high: the ends of the 95 % interval."""
    return [_row(found) for found in evaluations.values()]


def _row(found: MetricEvaluation) -> tuple[Any, ...]:
    result = found.result
    low, high = (None, None) if result is None or result.interval is None else result.interval
    return (
        found.metric.id,
        json.dumps(found.parameters.model_dump(mode="json")),
        None if result is None else result.value,
        low,
        high,
        None if result is None else result.standard_deviation,
        None if found.oracle is None else found.oracle.value,
        None if found.original is None else found.original.value,
        found.metric.unit,
        found.metric.direction.value,
        found.not_computed,
        "; ".join((*(() if result is None else result.notes), *found.reference_notes)),
    )


def number_text(result: MetricResult | None) -> str:
    """Return a value in four digits, a dash where there is none."""
    return "—" if result is None or math.isnan(result.value) else f"{result.value:.4g}"
