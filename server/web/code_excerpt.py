"""The lines of a participant's own file around the one at fault."""

from dataclasses import dataclass

from lethe.errors import AppError
from server.parsing import client as parsing

AROUND = 4
MAX_LINE_LENGTH = 200


@dataclass(frozen=True)
class ExcerptLine:
    number: int
    text: str
    at_fault: bool


def excerpt(source: str, line: int) -> tuple[ExcerptLine, ...]:
    """Return the lines around `line`, or nothing if the file has no such line."""
    lines = source.splitlines()
    if not 1 <= line <= len(lines):
        return ()
    first = max(1, line - AROUND)
    shown = lines[first - 1 : line + AROUND]
    return tuple(
        ExcerptLine(number, text[:MAX_LINE_LENGTH], number == line) for number, text in enumerate(shown, start=first)
    )


def source_file(data: bytes, *, kind: str, file: str) -> str:
    """Return one Python file of a stored submission; empty if it holds none of that name, or cannot be read now."""
    if kind == "py":
        return data.decode("utf-8", "replace")
    try:
        return str(parsing.run_if_free("read_source", data, name=file)) if kind == "zip" else ""
    except AppError:
        return ""
