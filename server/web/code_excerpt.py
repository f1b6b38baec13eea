"""A submission's code on pages: the lines around the one at fault, and whole files with highlighting."""

from dataclasses import dataclass

from markupsafe import Markup

from lethe.errors import AppError
from server.models.submission import Submission
from server.parsing import client as parsing
from server.storage import Storage
from server.submissions import submissions

MAX_CODE_CHARS = 400_000  # characters of all files together


def highlighted_files(storage: Storage, submission: Submission) -> list[tuple[str, Markup]]:
    """Return name and marked-up text of each Python file; of a notebook, of each code cell.

    Nothing if it is gone, was taken by rules that were wider, or cannot be read now.
    """
    kind = submission.kind
    try:
        data = submissions.read_code(storage, submission)
        shown = parsing.run_if_free(
            "show_sources", data, kind=kind, filename=f"submission.{kind}", max_characters=MAX_CODE_CHARS
        )
    except AppError:
        return []
    return [(name, Markup(html)) for name, html in shown]  # noqa: S704 (the formatter escapes)


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
