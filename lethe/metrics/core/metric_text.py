"""A metric in words: its page, the facts of the catalogue, and its table as lines."""

from collections.abc import Mapping, Sequence
from typing import Any

from lethe.metrics.core.array_catalogue import ARRAYS, Side
from lethe.metrics.core.derived_arrays import DERIVED
from lethe.metrics.core.registry import Direction, Metric, Resampling

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
