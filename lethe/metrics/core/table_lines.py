"""A metric's table as lines of text, a line for each number or column."""

from collections.abc import Mapping, Sequence
from typing import Any


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
