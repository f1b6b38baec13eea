"""What the parsing process can be asked: each task turns the bytes of a stranger into plain data."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from lethe.competition.file import parse_competition
from lethe.submission import notebook
from lethe.submission.notebook import Mode
from lethe.submission.package import load_package, read_zip
from lethe.text_files import decode_text
from server.parsing import dataset_archive as archive
from server.parsing import proposal
from server.parsing.mathematics import formula


def check_package(
    data: bytes, *, filename: str, modes: Sequence[Mode], libraries: str = "", task_name: str = ""
) -> dict[str, Any]:
    """Return a submission's kind, and what of it to call. Raises InvalidSubmission."""
    package = load_package(data, filename, modes=modes, libraries=libraries, task=task_name, sources_only=True)
    return {"kind": package.kind, "entry_point": package.entry_point.as_data()}


def show_sources(data: bytes, *, kind: str, filename: str, max_characters: int) -> list[tuple[str, str]]:
    """Return name and highlighted HTML of each Python file; of a notebook, of each code cell. Raises InvalidSubmission.

    max_characters: of all texts together; what goes beyond is left out.
    """
    shown, left = [], max_characters
    for name, text in _sources(data, kind=kind, filename=filename):
        if left <= 0:
            break
        shown.append((name, _highlighted(text[:left])))
        left -= len(text)
    return shown


def read_source(data: bytes, *, name: str) -> str:
    """Return one Python file of a zip, or nothing if it holds none of that name. Raises InvalidSubmission."""
    return read_zip(data, sources_only=True).get(name, b"").decode(errors="replace")


def read_competition(data: bytes, *, source: str) -> dict[str, Any]:
    """Return a competition file's checked values. Raises InvalidCompetitionFile."""
    return parse_competition(decode_text(data), source=source).model_dump(mode="json")


def render_markdown(data: bytes) -> str:
    """Return Markdown as HTML, `$...$` and `$$...$$` as MathML. Raw HTML in it is shown, not obeyed."""
    reader = MarkdownIt("js-default", {"html": False, "linkify": False})
    dollarmath_plugin(  # "$5 and $10" is money
        reader, allow_labels=False, allow_space=False, allow_digits=False, renderer=formula
    )
    return str(reader.render(data.decode()))


def check_dataset(file: IO[bytes], *, limits: Mapping[str, int]) -> dict[str, int]:
    """Return the number of a dataset's files, and their bytes. Raises InvalidInput."""
    return vars(archive.check(file, limits=limits))


def propose_competition(file: IO[bytes], *, limits: Mapping[str, int], **options: Any) -> dict[str, Any]:
    """Return what an archive holds and the competition proposed for it: server.parsing.proposal."""
    return proposal.propose_for(file, limits=limits, **options)


def unpack_dataset(file: IO[bytes], *, folder: str, limits: Mapping[str, int]) -> None:
    """Write the files of a dataset below a folder of this host. Raises InvalidInput."""
    archive.unpack(file, Path(folder), limits=limits)


def _sources(data: bytes, *, kind: str, filename: str) -> list[tuple[str, str]]:
    if kind == "zip":
        files = read_zip(data, sources_only=True)
        return [(name, files[name].decode(errors="replace")) for name in sorted(files) if name.endswith(".py")]
    if kind == "ipynb":
        cells = notebook.code_cells(data, shown_as=filename)
        return [(f"cell {number}", cell) for number, cell in enumerate(cells, start=1)]
    return [("submission.py", data.decode(errors="replace"))]


def _highlighted(text: str) -> str:
    lines = highlight(text, PythonLexer(stripnl=False), HtmlFormatter(nowrap=True)).splitlines()
    return "\n".join(f'<span class="linenos">{number}</span>{line}' for number, line in enumerate(lines, start=1))


TASKS: Mapping[str, Callable[..., Any]] = {
    "check_package": check_package,
    "read_competition": read_competition,
    "read_source": read_source,
    "render_markdown": render_markdown,
    "show_sources": show_sources,
}
FILE_TASKS: Mapping[str, Callable[..., Any]] = {
    "check_dataset": check_dataset,
    "propose_competition": propose_competition,
    "unpack_dataset": unpack_dataset,
}
