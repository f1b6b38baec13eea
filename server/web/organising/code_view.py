"""A submission's Python as an organiser reads it: highlighted, with line numbers."""

from functools import lru_cache

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from server.errors import InvalidSubmission, NotFound
from server.models.submission import Submission
from server.storage import Storage
from server.submissions import notebook
from server.submissions import service as submissions
from server.submissions.package import LIMITS, read_zip

LONGEST_CODE = 200_000


def highlighted_files(storage: Storage, submission: Submission) -> list[tuple[str, Markup]]:
    """Return name and marked-up text of each Python file; of a notebook, of each code cell. Nothing if it is gone."""
    try:
        files = _files(submissions.code_of(storage, submission), submission)
    except (NotFound, InvalidSubmission):  # removed since, or taken by rules that were wider
        return []
    return [(name, _highlighted(content[:LONGEST_CODE])) for name, content in files.items()]


def _files(data: bytes, submission: Submission) -> dict[str, bytes]:
    if submission.kind == "zip":
        return {name: content for name, content in sorted(read_zip(data, limits=LIMITS).items()) if _is_python(name)}
    if submission.kind == "ipynb":
        cells = notebook.cells_of(data, shown_as=submission.filename)
        return {f"cell {number}": cell.encode() for number, cell in enumerate(cells, start=1)}
    return {"submission.py": data}


def _is_python(name: str) -> bool:
    return name.endswith(".py")


@lru_cache(maxsize=64)  # 200 kB of code each at most; what is looked at is looked at again
def _highlighted(content: bytes) -> Markup:
    text = content.decode("utf-8", "replace")
    lines = highlight(text, PythonLexer(stripnl=False), HtmlFormatter(nowrap=True)).splitlines()
    numbered = (f'<span class="linenos">{number}</span>{line}' for number, line in enumerate(lines, start=1))
    return Markup("\n".join(numbered))  # noqa: S704 (the formatter escapes)
