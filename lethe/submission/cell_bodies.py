"""Cells that an export of a notebook holds as texts: `get_ipython().run_cell_magic('time', '', 'x = 1')`.

Where the magic runs its cell, the text becomes the argument of `get_ipython().run_text(...)`, in the line where it is;
its statements are looked at like those of an `if`.
"""

import ast
from collections.abc import Iterator

from lethe.submission.ipython_magics import BODY_RUNS_AS_IT_IS, SHELL_CELLS, is_python, to_python
from lethe.submission.names import dotted
from lethe.submission.parsing import parse_python

CELL_MAGIC = "get_ipython.run_cell_magic"
RUN_TEXT = "get_ipython.run_text"


def with_cell_bodies(text: str) -> str:
    """Return an export with the bodies of its cell magics run. It is Python, and keeps its lines."""
    for node in reversed(parse_python(text).body):
        if call := _translated(node):
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


def _translated(node: ast.stmt) -> str:
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
    return list(_constants(call))


def _constants(call: ast.Call) -> Iterator[object]:
    for argument in call.args:
        yield argument.value if isinstance(argument, ast.Constant) else None
