"""A metric in words and as JSON: its page, the facts of the catalogue, its table as lines, its values."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lethe.metrics.core.array_catalogue import ARRAYS, Side
from lethe.metrics.core.derived_arrays import DERIVED
from lethe.metrics.core.metric_evaluation import MetricEvaluation
from lethe.metrics.core.registry import Direction, Metric, Resampling
from lethe.metrics.core.result import MetricResult

DIRECTIONS = {
    Direction.HIGHER: "higher is better",
    Direction.LOWER: "lower is better",
    Direction.TOWARDS_RETRAINED: "the retrained models' value is the aim",
    Direction.NONE: "descriptive: no value is better",
}
INTERVALS = {
    Resampling.RUNS: "95 %, delete-half jackknife over runs",
    Resampling.MODELS: "95 %, delete-half jackknife over models, the metric computed again on every half",
    Resampling.OWN: "95 %, delete-half jackknife over models, with the buckets of all models",
    Resampling.NONE: "none",
}


def metric_facts(entry: Metric) -> dict[str, Any]:
    """Return what the catalogue says of a metric, in JSON's types."""
    return {
        "id": entry.id,
        "title": entry.title,
        "unit": entry.unit,
        "direction": entry.direction.value,
        "ideal": entry.ideal,
        "scope": entry.scope.value,
        "paired": entry.paired,
        "per_example": entry.per_example,
        "level": int(entry.level),
        "levels": [int(level) for level in entry.levels],
        "sides": [side.value for side in entry.sides],
        "arrays": [{"array": name, "side": side, "shape": shape} for name, side, shape, _ in array_rows(entry)],
        "parameters": {name: field.default for name, field in entry.defaults.model_fields.items()},
        "formula": entry.formula,
        "source": entry.source,
        "paper_and_code": entry.paper_and_code,
        "version": entry.version,
    }


def array_rows(entry: Metric) -> list[tuple[str, str, str, str]]:
    """Return the arrays that a metric needs: name, side, shape, and what it holds; no array twice."""
    rows = {}
    for need in entry.needs.values():
        for asked, name in need.sources:
            known = DERIVED.get(name) or ARRAYS[name]
            side = Side.SHARED if known.shared else asked
            rows[name, side] = (name, side.value, f"[{', '.join(known.axes)}]", known.description)
    return list(rows.values())


def metric_page(entry: Metric) -> str:
    """Return the metric's page in Markdown."""
    lines = [
        f"# {entry.title} (`{entry.id}`)",
        "",
        f"`{entry.formula}`" if "`" not in entry.formula else entry.formula,
        "",
        f"- Unit: {entry.unit}; {DIRECTIONS[entry.direction]}{_ideal(entry)}.",
        f"- Source: {entry.source}.",
        f"- Describes: one {entry.scope.value}." if entry.scope == "submission" else f"- Describes: a {entry.scope}.",
        f"- Runs are paired with retrained models: {'yes' if entry.paired else 'no'}.",
        f"- Values per example: {'yes' if entry.per_example else 'no'}.",
        f"- Interval: {INTERVALS[entry.resampling]}.",
        f"- Capture level: {int(entry.level)}. Version: {entry.version}.",
        "",
        "## Arrays",
        "",
        "| array | side | shape | holds |",
        "|---|---|---|---|",
        *(f"| `{name}` | {side} | {shape} | {text} |" for name, side, shape, text in array_rows(entry)),
        "",
        *_parameters(entry),
    ]
    if entry.paper_and_code:
        lines += ["## Paper and code", "", entry.paper_and_code, ""]
    return "\n".join(lines)


def _ideal(entry: Metric) -> str:
    return "" if entry.ideal is None else f"; ideal {entry.ideal:g}"


def _parameters(entry: Metric) -> list[str]:
    fields = entry.defaults.model_fields
    if not fields:
        return []
    rows = [f"| `{name}` | `{field.default}` |" for name, field in fields.items()]
    return ["## Parameters", "", "| parameter | default |", "|---|---|", *rows, ""]


def table_lines(table: Mapping[str, Any]) -> list[str]:
    """Return "name: value" or "name: value, value, ..." for each entry; numbers with four digits, None as a dash."""
    lines = []
    for name, cell in table.items():
        column = isinstance(cell, Sequence) and not isinstance(cell, str)
        lines.append(f"{name.replace('_', ' ')}: {', '.join(map(_cell, cell)) if column else _cell(cell)}")
    return lines


def _cell(cell: object) -> str:
    if cell is None:
        return "–"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


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
