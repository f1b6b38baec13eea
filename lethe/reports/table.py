"""A table of results, and how one value is shown."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from lethe.metrics.core.invalid_input import InvalidMetricInput

FAILED = "F"
MISSING = "—"
Value = str | int | float | None


@dataclass(frozen=True)
class Column:
    """name: the heading. decimals: how many a number is rounded to."""

    name: str
    decimals: int = 2


@dataclass(frozen=True)
class Table:
    """rows: as many values as columns each; None and NaN are missing, `FAILED` is a run that failed."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]

    def __post_init__(self) -> None:
        """Raise InvalidMetricInput for a row of another length."""
        for row in self.rows:
            if len(row) != len(self.columns):
                raise InvalidMetricInput(
                    f"a row of table {self.title!r} has {len(row)} values, not {len(self.columns)}: {row}"
                )

    def shown(self, row: Sequence[Value]) -> list[str]:
        """Return the row as text, numbers rounded to their column's decimals."""
        return [_shown(value, column.decimals) for value, column in zip(row, self.columns, strict=True)]

    def markdown(self) -> str:
        """Return the table in Markdown, its title above it, with a line break at the end."""
        names = [column.name for column in self.columns]
        marks = ["---"] + ["---:"] * (len(names) - 1)
        lines = [names, marks, *(self.shown(row) for row in self.rows)]
        rows = ("| " + " | ".join(_one_cell(text) for text in line) + " |" for line in lines)
        return f"**{self.title}**\n\n" + "\n".join(rows) + "\n"


def _one_cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def is_missing(value: Value) -> bool:
    """Return whether the value is None or not a number."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _shown(value: Value, decimals: int) -> str:
    if value is None or is_missing(value):
        return MISSING
    if isinstance(value, float):
        return f"{value:.{decimals}f}"
    return str(value)


def html_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a <table> element; all text is escaped."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
