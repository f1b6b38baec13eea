"""What a participant reads about a failed submission: what happened, where in the code, and what to do."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from lethe.errors import AppError
from lethe.runtime.error_classes import ErrorClass, names_line
from server.disclosure import gate
from server.models.evaluation import Evaluation
from server.models.submission import Fault, Submission
from server.parsing import client as parsing
from server.storage import Storage
from server.submissions import submissions

TITLES = {
    Fault.PARTICIPANT.value: "The code could not be scored",
    Fault.ORGANISER.value: "The competition's data is faulty",
    Fault.HOST.value: "Platform failure",
}
UNLIKE_THE_SAMPLE = "The smoke run passed: hidden data differ from the public sample, for example in their size."
NOT_YOURS = "This was not your fault and does not count. Submit it again, or ask the organisers to run it again."


@dataclass(frozen=True)
class FailureTexts:
    """The texts about a failed submission."""

    title: str
    message: str
    exception_type: str
    file: str
    line: int
    advice: str

    @property
    def names_its_line(self) -> bool:
        """Whether the message says which line it is about."""
        return names_line(self.message, self.line)


def describe_failure(submission: Submission, *, evaluation: Evaluation | None = None) -> FailureTexts | None:
    """Return why the submission failed, or None. evaluation: for organisers, who read what the team is not told."""
    if submission.error_class is None:
        return None
    error = (evaluation.error if evaluation is not None else None) or gate.failure(submission)
    advice = _advice(submission.error_class, error) if submission.fault != Fault.HOST.value else NOT_YOURS
    return FailureTexts(
        title=TITLES.get(submission.fault or "", "Failed"),
        message=str(error.get("message") or ""),
        exception_type=str(error.get("exception_type") or ""),
        file=str(error.get("file") or ""),
        line=int(error.get("line") or 0),
        advice=advice,
    )


def raised_line(traceback: str, exception_type: str) -> str:
    """Return the last line of a traceback, with exception and message; empty if there is none."""
    lines = [line.strip() for line in traceback.splitlines()]
    named = (line for line in reversed(lines) if line.partition(":")[0].rpartition(".")[2] == exception_type)
    return next(named, "") if exception_type else ""


def _advice(error_class: ErrorClass, error: Mapping[str, Any]) -> str:
    if error_class is ErrorClass.EXCEPTION and "bits" in error:
        return f"{error_class.advice} {UNLIKE_THE_SAMPLE}"
    if error.get("withheld"):
        return "Run it on the public sample, where nothing is withheld: `lethe check FILE --log`."
    return error_class.advice


MAX_CODE_CHARS = 400_000  # characters of all files together


def highlighted_files(storage: Storage, submission: Submission) -> list[tuple[str, Markup]]:
    """Return name and marked-up text of each Python file or code cell; nothing if it cannot be read now."""
    kind = submission.kind
    try:
        data = submissions.read_code(storage, submission)
        shown = parsing.run_if_free(
            "show_sources", data, kind=kind, filename=f"submission.{kind}", max_characters=MAX_CODE_CHARS
        )
    except AppError:
        return []
    return [(name, Markup(html)) for name, html in shown]  # noqa: S704 (the formatter escapes)


CONTEXT_LINES = 4
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
    first = max(1, line - CONTEXT_LINES)
    shown = lines[first - 1 : line + CONTEXT_LINES]
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
