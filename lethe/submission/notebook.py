"""A notebook, taken apart as JSON without a kernel: its code cells become files of a package.

Each code cell is a file of its own, so that a line in an error is a line of that cell. IPython's additions to Python
are turned into plain calls of get_ipython(), as IPython itself does it: only in a cell that is not Python as it stands,
and only in lines that begin a statement; so a `%` or `!` inside a string or an expression stays what it is.
"""

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from lethe.submission.parsing import dotted, parse_python, parse_source, refused_at
from lethe.text_files import decode_text

SHELL_CELLS = frozenset({"bash", "sh", "script", "system", "sx"})
BODY_RUNS_AS_IT_IS = frozenset({"time", "timeit", "capture", "prun"})
MAX_CELL_MAGICS = 3  # one on top of the other
STATEMENT_FOLLOWS = frozenset({"time", "timeit", "prun"})

_CELL_MAGIC = re.compile(r"^%%(\w+)[ \t]*(.*)$")
_LINE_MAGIC = re.compile(r"^(\s*)%(\w+)[ \t]*(.*)$")
_SHELL = re.compile(r"^(\s*)!{1,2}(.*)$")
_ASSIGNED = re.compile(r"^(\s*)([A-Za-z_][\w.,\[\]'\" \t]*)=\s*([!%])(?!=)\s*(.*)$")
_HELP = re.compile(r"^(\s*)(?:\?{1,2}\s*[\w.]+|[\w.*]+\s*\?{1,2})\s*$")


def to_python(cell: str, *, inside: int = 0) -> str:
    """Return the cell as Python with as many lines. What is still no Python is left for the parser to name.

    inside: how many cell magics it is the body of.
    """
    if inside > MAX_CELL_MAGICS or is_python(cell):
        return cell
    lines = cell.split("\n")
    first = next((number for number, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#")), 0)
    if magic := _CELL_MAGIC.match(lines[first]):
        return _whole_cell(lines, first, name=magic[1], rest=magic[2], inside=inside)
    return _lines_to_python(lines)


def is_python(text: str) -> bool:
    """Return whether the text parses."""
    try:
        parse_python(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _whole_cell(lines: list[str], first: int, *, name: str, rest: str, inside: int) -> str:
    body = lines[first + 1 :]
    if name in BODY_RUNS_AS_IT_IS:
        return "\n".join([*lines[:first], "", to_python("\n".join(body), inside=inside + 1)])
    if name in SHELL_CELLS:
        call = _shell_call("\n".join(body))
    else:
        content = "\n".join(body)
        call = f"get_ipython().run_cell_magic({name!r}, {rest.strip()!r}, {content!r})"
    return "\n".join([*lines[:first], call, *[""] * len(body)])


def _lines_to_python(lines: list[str]) -> str:
    done: list[str] = []
    reader = _Reader(sum(len(line) for line in lines))
    number = 0
    while number < len(lines):
        taken = 1
        line = lines[number]
        if _may_be_special(line) and reader.begins_a_statement(done, line):
            line, taken = _joined(lines, number)
            line = _translated(line)
        done += [line, *[""] * (taken - 1)]
        number += taken
    return "\n".join(done)


def _may_be_special(line: str) -> bool:
    return bool(_SHELL.match(line) or _LINE_MAGIC.match(line) or _ASSIGNED.match(line) or _HELP.match(line))


class _Reader:
    """Finds out where statements begin, reading each line about once: what is whole need not be read again."""

    def __init__(self, cell_length: int) -> None:
        self._from = 0  # every line before this one belongs to a whole statement at the top level
        self._left = 16 * cell_length + 40_000  # characters that may still be read more than once

    def begins_a_statement(self, before: list[str], line: str) -> bool:
        """Return whether a statement could begin at this line, given all the (translated) lines before it."""
        indent = line[: len(line) - len(line.lstrip())]
        text = "\n".join([*before[self._from :], f"{indent}pass"])
        begins = self._left > 0 and is_python(text)
        if begins and not indent:
            self._from = len(before)
        else:
            self._left -= len(text)
        return begins


def _joined(lines: list[str], number: int) -> tuple[str, int]:
    """Return the line with those that a backslash at its end joins to it, and how many lines that were."""
    text, taken = lines[number], 1
    while text.endswith("\\") and number + taken < len(lines):
        text = text[:-1] + lines[number + taken].lstrip()
        taken += 1
    return text, taken


def _translated(line: str) -> str:
    rules: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
        (_ASSIGNED, _assignment),
        (_SHELL, lambda match: match[1] + _shell_call(match[2].strip())),
        (_LINE_MAGIC, _line_magic),
        (_HELP, lambda match: f"{match[1]}pass"),
    )
    for pattern, rule in rules:
        if match := pattern.match(line):
            return rule(match)
    return line


def _assignment(match: re.Match[str]) -> str:
    indent, target, mark, rest = match.groups()
    target = target.rstrip()
    if mark == "!":
        return f"{indent}{target} = get_ipython().getoutput({rest.strip()!r}, {{**globals(), **locals()}})"
    name, _, argument = rest.strip().partition(" ")
    return f"{indent}{target} = get_ipython().run_line_magic({name!r}, {argument.strip()!r})"


def _line_magic(match: re.Match[str]) -> str:
    indent, name, rest = match.groups()
    if name in STATEMENT_FOLLOWS and rest.strip() and is_python(rest.strip()):
        return indent + rest.strip()
    return f"{indent}get_ipython().run_line_magic({name!r}, {rest.strip()!r})"


def _shell_call(command: str) -> str:
    return f"get_ipython().system({command!r}, {{**globals(), **locals()}})"


CELL_MAGIC = "get_ipython.run_cell_magic"
RUN_TEXT = "get_ipython.run_text"


def with_cell_bodies(text: str) -> str:
    """Return an export with the bodies of its cell magics run. It is Python, and keeps its lines."""
    for node in reversed(parse_python(text).body):
        if call := _translated_call(node):
            lines = text.encode().split(b"\n")
            first, last = node.lineno - 1, node.end_lineno or node.lineno
            after = lines[last - 1][node.end_col_offset :]
            before = lines[first][: node.col_offset]
            lines[first:last] = [before + call.encode() + after, *[b""] * (last - first - 1)]
            text = b"\n".join(lines).decode()
    return text


def with_bodies_parsed(tree: ast.Module) -> ast.Module:
    """Return a cell's tree with the texts that it runs in it, each in the line where its text begins."""
    tree.body = [_if_true(node) for node in tree.body]
    return tree


def _translated_call(node: ast.stmt) -> str:
    """Return the call that runs the body of a cell magic; nothing for any other statement."""
    match _arguments(node, CELL_MAGIC):
        case [str(name), str(_), str(body)] if name in BODY_RUNS_AS_IT_IS and is_python(code := to_python(body)):
            return f"get_ipython().run_text({code!r})"
        case [str(name), str(_), str(body)] if name in SHELL_CELLS:
            return f"get_ipython().system({body!r})"
    return ""


def _if_true(node: ast.stmt) -> ast.stmt:
    match _arguments(node, RUN_TEXT):
        case [str(code)] if is_python(code):
            found = ast.If(ast.Constant(True), parse_python(code).body or [ast.Pass()], [])
            for inner in ast.walk(found):
                ast.copy_location(inner, node)
            return found
    return node


def _arguments(node: ast.stmt, called: str) -> list[object]:
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or dotted(call.func) != called or call.keywords:
        return []
    return [argument.value if isinstance(argument, ast.Constant) else None for argument in call.args]


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
