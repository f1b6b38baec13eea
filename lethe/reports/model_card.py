"""Metrics of one model as rows, and as a model card: Markdown with the front matter that model hubs read."""

import json
import math
from collections.abc import Mapping
from typing import Any

import lethe
from lethe.metrics.core.metric_evaluation import MetricEvaluation
from lethe.metrics.core.result import MetricResult

COLUMNS = (
    "metric", "parameters", "value", "low", "high", "standard_deviation", "oracle", "original", "unit", "direction",
    "not_computed", "notes",
)  # fmt: skip


def evaluation_rows(evaluations: Mapping[str, MetricEvaluation]) -> list[tuple[Any, ...]]:
    """Return a row per metric, in the order of COLUMNS. low, high: the ends of the 95 % interval."""
    return [_tidy_row(found) for found in evaluations.values()]


def _tidy_row(found: MetricEvaluation) -> tuple[Any, ...]:
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


TAGS = ("machine-unlearning", "lethe")


def model_card(
    evaluations: Mapping[str, MetricEvaluation],
    *,
    name: str,
    n_models: int | None,
    description: str,
    licence: str | None,
    method: str | None,
    constants: Mapping[str, Any],
    dataset: str | None,
) -> str:
    """Return the card. Every value has its interval and the oracle's and the original's beside it."""
    computed = {key: found for key, found in evaluations.items() if found.result is not None}
    left_out = {key: found.not_computed for key, found in evaluations.items() if found.result is None}
    settings = ", ".join(f"{key} = {value}" for key, value in constants.items())
    facts = (
        ("Method", " with ".join(filter(None, (method, settings)))),
        ("Data", dataset),
        ("Unlearned models", None if n_models is None else f"{n_models}; metrics of another number do not compare"),
        ("Measured with", f"Lethe {lethe.__version__}"),
    )
    lines = [
        *_front_matter(computed, name=name, licence=licence, dataset=dataset),
        f"# {name}",
        "",
        *([description, ""] if description else []),
        *(f"- **{label}**: {text}" for label, text in facts if text),
        "",
        "## Unlearning",
        "",
        "| metric | value | 95 % interval | oracle | original | unit | better |",
        "|---|---|---|---|---|---|---|",
        *(_row(key, found) for key, found in computed.items()),
        "",
        "The oracle is a second set of models retrained without the forget set: what exact unlearning gives. The "
        "original is the model before unlearning. A value says something only beside these two.",
        *_not_computed(left_out),
    ]
    return "\n".join(lines) + "\n"


def _front_matter(
    computed: Mapping[str, MetricEvaluation], *, name: str, licence: str | None, dataset: str | None
) -> list[str]:
    """Return the lines between the dashes; every JSON string is a YAML string."""
    lines = ["---", f"tags: {json.dumps(TAGS)}"]
    if licence is not None:
        lines.append(f"license: {json.dumps(licence)}")
    results = [
        {"type": key, "name": found.metric.title, "value": found.result.value}
        for key, found in computed.items()
        if found.result is not None and found.result.value == found.result.value
    ]
    if results:
        entry = {
            "task": {"type": "machine-unlearning"},
            "dataset": {"type": dataset or "unknown", "name": dataset or "not stated"},
            "metrics": results,
        }
        lines.append(f"model-index: {json.dumps([{'name': name, 'results': [entry]}], default=float)}")
    return [*lines, "---", ""]


def _row(key: str, found: MetricEvaluation) -> str:
    cells = (
        f"`{key}`",
        number_text(found.result),
        _interval(found.result),
        number_text(found.oracle),
        number_text(found.original),
        found.metric.unit,
        found.metric.direction.value,
    )
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _interval(result: MetricResult | None) -> str:
    interval = None if result is None else result.interval
    return "—" if interval is None else f"{interval[0]:.4g} to {interval[1]:.4g}"


def _not_computed(left_out: Mapping[str, str]) -> list[str]:
    if not left_out:
        return []
    return ["", "Not computed:", "", *(f"- `{key}`: {reason}" for key, reason in left_out.items())]
