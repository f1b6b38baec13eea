"""IPython's additions to Python, turned into plain calls of get_ipython(), as IPython itself does it.

Only a cell that is not Python as it stands is touched, and only lines that begin a statement; so a `%` or `!` inside a
string or an expression stays what it is. Nothing is run here.
"""

import ast
import re
from collections.abc import Callable

from lethe.submission.parsing import dotted, parse_python

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
