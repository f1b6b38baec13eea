"""A submission's Python as its team and organisers read it: highlighted, with line numbers."""

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
