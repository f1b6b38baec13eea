"""Python's parser for text that a participant sent, how deeply it may be nested, and the names in it."""

import ast
import threading
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def dotted(node: ast.expr) -> str:
    """Return `a.b.c` for such an expression; calls and indices within it count as nothing: `get_ipython.system`."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
        node = node.func if isinstance(node, ast.Call) else node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))


def names_bound(node: ast.stmt) -> frozenset[str]:
    """Return the names that running the statement binds, or may bind, at the top level."""
    return frozenset(_bound(node))


def reached_definitions(trees: Sequence[ast.Module], function: str) -> list[ast.stmt]:
    """Return the statements of the top level that `function` may use by name, itself included."""
    binders = defaultdict(list)
    for node in (node for tree in trees for node in tree.body):
        for name in names_bound(node):
            binders[name].append(node)
    reached: dict[int, ast.stmt] = {}
    seen, waiting = {function}, [function]
    while waiting:
        for node in binders.get(waiting.pop(), ()):
            if id(node) not in reached:
                reached[id(node)] = node
                new = {part for found in ast.walk(node) for part in _read(found)} - seen
                seen |= new
                waiting += new
    return list(reached.values())


def _read(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.Attribute):  # of a module, or of an object
        yield node.attr
    elif isinstance(node, ast.ImportFrom):  # of another file of the package
        yield from (alias.name for alias in node.names)


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, Definition):
        yield node.name
        return
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        return
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name
    if not isinstance(node, ast.Lambda | ast.comprehension):
        for child in ast.iter_child_nodes(node):
            yield from _bound(child)


MAX_LEVELS = 200  # ordinary code has 20; a sum of 150 terms has 150


def is_too_deep(tree: ast.AST) -> bool:
    """Return whether a syntax tree has more than MAX_LEVELS levels. Never recurses."""
    level = [tree]
    for _ in range(MAX_LEVELS):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return False
    return True


_ONE_AT_A_TIME = threading.Lock()  # the filters of warnings are the process's; the parser holds the interpreter anyway


@contextmanager
def suppress_syntax_warnings() -> Iterator[None]:
    """Let Python read a participant's text. Its warnings (of an escape like "\\d") quote it, and go to our log."""
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def parse_python(text: str | bytes, *, filename: str = "<unknown>") -> ast.Module:
    """Return the module that the text is, as ast.parse does, without a word of Python's.

    Raises what ast.parse raises: SyntaxError, ValueError, RecursionError, MemoryError.
    """
    with suppress_syntax_warnings():
        return ast.parse(text, filename=filename)
