"""The lines of a participant's own file around the one at fault."""

import io
import zipfile
from dataclasses import dataclass

AROUND = 4
LONGEST_LINE = 200


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
        ExcerptLine(number, text[:LONGEST_LINE], number == line) for number, text in enumerate(shown, start=first)
    )


def file_of(data: bytes, *, kind: str, file: str, limit: int = 2 << 20) -> str:
    """Return one text file of a stored submission; empty if it holds none of that name."""
    if kind == "py":
        return data[:limit].decode("utf-8", "replace")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive, archive.open(file) as member:
            return member.read(limit).decode("utf-8", "replace")
    except (KeyError, OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError):
        return ""
