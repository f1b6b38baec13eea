"""A notebook, taken apart as JSON without a kernel: its code cells become files of a package.

Each code cell is a file of its own, so that a line in an error is a line of that cell.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from lethe.submission.ipython_magics import is_python, to_python, with_cell_bodies
from lethe.submission.parsing import dotted, parse_source, refused_at
from lethe.text_files import decode_text

Mode = Literal["function", "notebook"]

MAX_CELLS = 2000
MAX_SOURCE_BYTES = 2 << 20
MAX_LINES = 50_000
ENTRY_FILE = "notebook.py"
# No \s, which would run over all the empty lines that follow, from each of them again.
MODE_COMMENT = re.compile(r"^[ \t]*#[ \t]*lethe:[ \t]*mode[ \t]*=[ \t]*[\"']?(\w+)[\"']?[ \t]*$", re.MULTILINE)
INPUT_FOLDER = re.compile(r"/kaggle/|\.\./input/")  # the second from /kaggle/working
SHELL_CALL = re.compile(r"^[^#\n]*\bget_ipython\(\)", re.MULTILINE)
SAVED = re.compile(r"\btorch\.save\b|unlearned_checkpoint")  # in a file or a command that the notebook runs


def code_cells(data: bytes, *, shown_as: str) -> list[str]:
    """Return the code cells as Python. Raises InvalidSubmission naming the cell and its line."""
    sources = _code_cells(_parsed(data, shown_as), shown_as)
    if sum(len(source) for source in sources) > MAX_SOURCE_BYTES:
        raise refused_at(shown_as, f"has more than {MAX_SOURCE_BYTES} bytes of code")
    if sum(source.count("\n") for source in sources) > MAX_LINES:
        raise refused_at(shown_as, f"has more than {MAX_LINES} lines of code")
    cells = [to_python(source) for source in sources]
    for number, cell in enumerate(cells, start=1):
        parse_source(cell, f"{shown_as}, cell {number}")
    return cells


def list_files(cells: Sequence[str]) -> dict[str, bytes]:
    """Return the package's files: one for each cell."""
    width = max(2, len(str(len(cells))))
    return {f"cell-{number:0{width}}.py": text.encode() for number, text in enumerate(cells, start=1)}


def mode_said_in(cells: Sequence[str], *, shown_as: str) -> Mode | None:
    """Return the mode that a comment `# lethe: mode = notebook` asks for, if there is one."""
    for number, cell in enumerate(cells, start=1):
        if match := MODE_COMMENT.search(cell):
            if match[1] == "function":
                return "function"
            if match[1] == "notebook":
                return "notebook"
            raise refused_at(f"{shown_as}, cell {number}", f"mode must be function or notebook, was {match[1]!r}")
    return None


def saves_models(trees: Sequence[ast.Module]) -> bool:
    """Return whether the code itself writes models: its own calls, or files and commands that it holds as texts."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = {"torch.save", *(name for node in nodes for name in _names_of_save(node))}
    return any(
        (isinstance(node, ast.Call) and dotted(node.func) in names)
        or (isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(SAVED.search(node.value)))
        for node in nodes
    )


def _names_of_save(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (f"{alias.asname}.save" for alias in node.names if alias.name == "torch" and alias.asname)
    elif isinstance(node, ast.ImportFrom) and node.module == "torch":
        yield from (alias.asname or alias.name for alias in node.names if alias.name == "save")


def cell_of_export(data: bytes) -> str | None:
    """Return a notebook's export as .py as one cell of Python, or None for a file that is not an export.

    It is one if it calls get_ipython(), is Python only once its magics are translated, or names Kaggle's folders.
    """
    try:
        text = decode_text(data)
        if not is_python(text):
            text = to_python(text)
            return text if is_python(text) else None
        is_export = bool(SHELL_CALL.search(text) or INPUT_FOLDER.search(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return with_cell_bodies(text) if is_export else None


def _parsed(data: bytes, shown_as: str) -> Mapping[str, Any]:
    try:
        notebook = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise refused_at(shown_as, f"is not a notebook: it is not JSON ({error})") from error
    if not isinstance(notebook, dict):
        raise refused_at(shown_as, "is not a notebook: it is not a JSON object")
    _check_language(notebook.get("metadata"), shown_as)
    return notebook


def _check_language(metadata: Any, shown_as: str) -> None:
    info = metadata.get("language_info") if isinstance(metadata, dict) else None
    name = info.get("name", "python") if isinstance(info, dict) else "python"
    if not (isinstance(name, str) and name.lower() in ("python", "ipython")):
        raise refused_at(shown_as, f"is a notebook in {str(name)[:40]!r}; only Python is run")


def _code_cells(notebook: Mapping[str, Any], shown_as: str) -> list[str]:
    cells = notebook.get("cells")
    if cells is None:  # nbformat 3
        sheets = notebook.get("worksheets")
        sheets = [sheet for sheet in sheets if isinstance(sheet, dict)] if isinstance(sheets, list) else []
        cells = [cell for sheet in sheets for cell in _list(sheet.get("cells"), shown_as)]
    found = [
        _source(cell, shown_as)
        for cell in _list(cells, shown_as)
        if isinstance(cell, dict) and cell.get("cell_type") == "code"
    ]
    if not found:
        raise refused_at(shown_as, "has no code cell")
    if len(found) > MAX_CELLS:
        raise refused_at(shown_as, f"has more than {MAX_CELLS} code cells")
    return found


def _list(value: Any, shown_as: str) -> list[Any]:
    if not isinstance(value, list):
        raise refused_at(shown_as, "is not a notebook: it has no list of cells")
    return value


def _source(cell: Mapping[str, Any], shown_as: str) -> str:
    source = cell.get("source", cell.get("input", ""))
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        source = "".join(source)
    if not isinstance(source, str):
        raise refused_at(shown_as, "has a cell whose source is neither text nor a list of lines")
    if "\x00" in source or any("\ud800" <= character <= "\udfff" for character in source):
        raise refused_at(shown_as, "has a cell with characters that are no text")
    return source.replace("\r\n", "\n").replace("\r", "\n")
