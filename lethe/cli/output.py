"""How commands print: tables, facts and JSON; what strangers wrote is shown, and steers no terminal."""

import codecs
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

Column = str | Callable[[Any], object]
Columns = dict[str, Column]
WHOLE = frozenset(
    {"id", "action", "subject", "received"}
)  # to copy from: where space is short, other columns are narrowed
MIN_WIDTH = 8  # of a column of words


class Terminal(Console):
    """Rich removes five control characters; ESC and C1, which begin commands, are not among them."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield what is printed, with every character that a terminal obeys written as an escape."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control or text.isprintable() else Segment(_escaped(text), style)


def _escaped(text: str) -> str:
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


console = Terminal()
notes = Terminal(stderr=True)


def accept_any_letter() -> None:
    """Let a terminal that is not UTF-8 show a ? for a letter that it lacks, in place of an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def print_json(value: Any) -> None:
    """Print JSON: as it is on UTF-8, else with escapes, so that nothing of it is lost."""
    is_utf8 = codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=not is_utf8) + "\n")


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Print a table; columns whose name ends in # hold numbers: aligned to the right, whole where there is room."""
    filled = list(rows)
    if not filled:
        console.print(empty)
        return
    fits = _width_with_whole_numbers(columns, filled) <= console.width
    table = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for column in columns:
        name, is_number = column.rstrip("#"), column.endswith("#")  # where two have one name, the second ends in ##
        stays = name in WHOLE or (is_number and fits)
        table.add_column(name, justify="right" if is_number else "left", no_wrap=stays)
    for row in filled:
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))  # not as markup: strangers' words
    console.print(table)


def _width_with_whole_numbers(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> int:
    """Return how wide a table is in which numbers stay whole, and words have the room that they need at least."""
    cells = ([column.rstrip("#"), *(str(row[place]) for row in rows)] for place, column in enumerate(columns))
    widest = [max(len(line) for cell in each for line in cell.split("\n")) for each in cells]
    stay = [width if column.endswith("#") else MIN_WIDTH for column, width in zip(columns, widest, strict=True)]
    return sum(stay) + 2 * (len(stay) - 1)


def print_rows(found: Iterable[Any], columns: Mapping[str, Column], *, empty: str) -> None:
    """Print JSON objects as a table. columns: by heading a key, or what makes the cell; `..._at` is a timestamp."""
    rows = ([_cell(row, column) for column in columns.values()] for row in found)
    print_table("", list(columns), rows, empty=empty)


def _cell(row: Any, column: Column) -> object:
    if not isinstance(column, str):
        return column(row)
    return local_time(row[column]) if column.endswith("_at") else row[column]


def print_notes(texts: Sequence[str]) -> None:
    """Print what may make a submission fail."""
    for text in texts:
        console.print(f"Note: {text}", style="yellow", markup=False, highlight=False)


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Print names and values in two columns, leaving out what has no value."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in facts:
        if value not in (None, ""):
            table.add_row(name, Text(str(value)))
    console.print(table)


def local_time(text: str | None) -> str:
    """Return a timestamp of the server's in the reader's own zone."""
    if not text:
        return ""
    try:
        return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M %Z")
    except OverflowError:  # in the last hours of the year 9999
        return text


def score_text(score: float | None) -> str:
    return "" if score is None else f"{score:.5f}"  # as many digits as public scores have


def write_json(document: Any, file: Path | None) -> None:
    """Print the document, or write it to the file, whose readers see the old or the new one.

    Raises typer.BadParameter if the file cannot be written.
    """
    text = json.dumps(document, indent=2, allow_nan=False)
    if file is None:
        typer.echo(text)
        return
    try:
        if file.exists() and not file.is_file():  # a device or a pipe
            file.write_text(text + "\n", encoding="utf-8")
            return
        beside = file.resolve().with_name(f".{file.name}.{os.getpid()}.part")
        beside.write_text(text + "\n", encoding="utf-8")
        beside.replace(file.resolve())
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be written: {error.strerror}") from error
