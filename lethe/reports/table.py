"""A table of results, how one value is shown, and lines of CSV that a spreadsheet shows and does not run."""

import csv
import io
import json
import math
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from lethe.errors import InvalidInput
from lethe.metrics.core.invalid_input import InvalidMetricInput

STARTS = frozenset("=+-@")
# Signs with the shape of one of these that NFKC keeps.
LOOK_ALIKES = str.maketrans("−‐‑‒–—―⁃˗➖꞊═⹀᐀➕᛭", "----------====++")


def csv_lines(rows: Iterable[Sequence[object]], *, line_end: str = "\r\n") -> Iterator[str]:
    """Yield one line for each row, a float with all its digits.

    Every text is quoted, so that no separator in it (also not the semicolon of some countries) begins another cell.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, quoting=csv.QUOTE_NONNUMERIC, lineterminator=line_end)
    for row in rows:
        # an apostrophe before a formula says that it is text
        writer.writerow([f"'{cell}" if isinstance(cell, str) and _begins_formula(cell) else cell for cell in row])
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def _begins_formula(text: str) -> bool:
    """Return whether a spreadsheet may run `text`: a sign in any width, also after what is not visible."""
    if text[:1] in ("\t", "\r", "\n"):
        return True
    plain = unicodedata.normalize("NFKC", text).translate(LOOK_ALIKES)
    visible = (each for each in plain if not (each.isspace() or unicodedata.category(each) in ("Cc", "Cf")))
    return next(visible, "") in STARTS


def json_text(document: Any) -> str:
    """Return a document as JSON that ends with a line break; NaN has become null before."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def written(text: str, path: str | Path | None) -> str:
    """Return the text, and write it to a file if one is named. Raises InvalidInput if it cannot be written."""
    if path is not None:
        try:
            Path(path).write_text(text, encoding="utf-8")
        except OSError as error:
            raise InvalidInput(f"{path} cannot be written: {error.strerror}") from error
    return text


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
        cells = ([each.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ") for each in line] for line in lines)
        return f"**{self.title}**\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in cells)


def _shown(value: Value, decimals: int) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return MISSING
    if isinstance(value, float):
        return f"{value:.{decimals}f}"
    return str(value)


def html_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a <table> element; all text is escaped."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
