"""Python's parser for text that a participant sent, how deeply it may be nested, and the names in it.

How code reads a batch, by the competition's keys or as a pair of inputs and targets, is seen without running it.
"""

import ast
import re
import threading
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal

from lethe.errors import InvalidSubmission, Violation

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


NOT_SOURCE = "is not Python source"
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


def parse_python(text: str | bytes) -> ast.Module:
    """Return the module that the text is, as ast.parse does, without a word of Python's.

    Its warnings (of an escape like "\\d") quote a participant's text, and go to our log. Raises what ast.parse raises:
    SyntaxError, ValueError, RecursionError, MemoryError.
    """
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def parse_source(source: str | bytes, shown_as: str) -> ast.Module:
    """Return the module that a participant's text is. Raises InvalidSubmission naming the file, as shown, and line."""
    if isinstance(source, bytes) and b"\0" in source:
        raise refused_at(shown_as, f"{NOT_SOURCE}: it holds null bytes, as pictures, archives and text in UTF-16 do")
    try:
        tree = parse_python(source)
    except SyntaxError as error:
        raise refused_at(shown_as, f"syntax error: {error.msg}", line=error.lineno) from error
    except UnicodeDecodeError as error:
        raise refused_at(shown_as, f"{NOT_SOURCE}: it is no text in UTF-8") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise refused_at(shown_as, f"cannot be read as Python: {str(error) or type(error).__name__}") from error
    if is_too_deep(tree):
        raise refused_at(shown_as, f"is nested deeper than {MAX_LEVELS} levels")
    return tree


def refused_at(field: str, message: str, *, line: int | None = None) -> InvalidSubmission:
    """Return the error that says what is wrong with a file, or a place in it, and in which line."""
    where = f"{field}, line {line}" if line else field
    return InvalidSubmission(f"{where}: {message}", violations=(Violation(field, message, line=line),))


Style = Literal["dict", "tuple"]
DICT_KEYS = frozenset({"image", "image_id", "age_group", "label", "age", "person_id"})
# What hands on the batches of the loaders that it is given.
WRAPPERS = frozenset(
    "DataLoader chain cycle enumerate islice iter list next tqdm tqdm_notebook trange zip zip_longest".split()  # noqa: SIM905
)
ZIPS = frozenset({"zip", "zip_longest"})
DICT_METHODS = frozenset({"items", "keys", "values"})
LOADER = re.compile(r"load|retain|remain|forget|(^|_)(val|valid|validation|dl|ds|dataset)(_|$|\d)", re.IGNORECASE)
PASSES = 3  # names that stand for a loader, for what wraps it, and for that


def sample_style(trees: Sequence[ast.Module]) -> Style:
    """Return how the code reads a batch: by the competition's keys, or by unpacking (inputs, targets).

    `for x, y in loader`, or `x, y = batch` and `batch[0]` of its batches, without any of the keys, mean tuples;
    everything else means dicts.
    """
    nodes = [node for tree in trees for node in ast.walk(tree)]
    if any(_is_key(node) for node in nodes):
        return "dict"
    batches = _Batches(nodes)
    return "tuple" if batches.are_pairs() and not batches.are_dicts() else "dict"


class _Batches:
    """loaders: names that stand for loaders, or for what wraps them. batches: names of their batches."""

    def __init__(self, nodes: Sequence[ast.AST]) -> None:
        self._nodes = nodes
        self._loaders: set[str] = set()
        self._batches: set[str] = set()
        self._stale: set[int] = set()
        for _ in range(PASSES):
            for target, value in self._assigned():
                if isinstance(target, ast.Name) and self._is_loader(value):
                    (self._batches if _last_name(value) == "next" else self._loaders).add(target.id)
        loops = [node for node in nodes if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension)]
        self._targets = [target for loop in loops for target in self._matched(loop.target, loop.iter)]
        self._batches |= {target.id for target in self._targets if isinstance(target, ast.Name)}
        self._stale = {id(name) for node in nodes if isinstance(node, ast.For) for name in self._after_rebinding(node)}

    def are_pairs(self) -> bool:
        """Return whether a batch is unpacked into two, or read by position."""
        if any(_is_pair(target) for target in self._targets):
            return True
        if any(_is_pair(target) and self._is_batch(value) for target, value in self._assigned()):
            return True
        return any(type(key) is int for key in self._keys())

    def are_dicts(self) -> bool:
        """Return whether a batch is read by names, or asked for its keys or values."""
        if any(type(key) is str for key in self._keys()):
            return True
        attributes = (node for node in self._nodes if isinstance(node, ast.Attribute) and node.attr in DICT_METHODS)
        return any(self._is_batch(node.value) for node in attributes)

    def _keys(self) -> Iterator[object]:
        """Yield the constants by which batches are subscripted."""
        for node in self._nodes:
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and self._is_batch(node.value):
                yield node.slice.value

    def _after_rebinding(self, loop: ast.For) -> Iterator[ast.Name]:
        """Yield where the loop reads a name that stood for a batch, and has been given something else."""
        for node in ast.walk(loop):
            if isinstance(node, ast.Assign) and not self._is_batch(node.value):
                names = {getattr(target, "id", "") for target in node.targets} & self._batches
                end = (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
                later = (name for name in ast.walk(loop) if isinstance(name, ast.Name) and name.id in names)
                yield from (name for name in later if (name.lineno, name.col_offset) > end)

    def _assigned(self) -> Iterator[tuple[ast.expr, ast.expr]]:
        for node in self._nodes:
            if isinstance(node, ast.Assign):
                yield from ((target, node.value) for target in node.targets)
            elif isinstance(node, ast.withitem) and node.optional_vars is not None:
                yield node.optional_vars, node.context_expr

    def _is_batch(self, value: ast.expr) -> bool:
        if _last_name(value) == "next":
            return self._is_loader(value)
        if isinstance(value, ast.ListComp | ast.GeneratorExp):  # [part.to(device) for part in batch]
            return self._is_batch(value.generators[0].iter)
        if isinstance(value, ast.Call):
            return _last_name(value) in ("list", "map", "tuple") and any(map(self._is_batch, value.args))
        return isinstance(value, ast.Name) and value.id in self._batches and id(value) not in self._stale

    def _is_loader(self, value: ast.expr) -> bool:
        if isinstance(value, ast.Call):
            return _last_name(value) in WRAPPERS and any(map(self._is_loader, value.args[:3]))
        name = value.attr if isinstance(value, ast.Attribute) else getattr(value, "id", "")
        return name in self._loaders or (name not in self._batches and bool(LOADER.search(name)))

    def _matched(self, target: ast.expr, source: ast.expr) -> Iterator[ast.expr]:
        name = _last_name(source) if isinstance(source, ast.Call) else ""
        parts = target.elts if isinstance(target, ast.Tuple | ast.List) else []
        if isinstance(source, ast.Call) and name in ZIPS and len(parts) == len(source.args):
            for part, argument in zip(parts, source.args, strict=True):
                yield from self._matched(part, argument)
        elif isinstance(source, ast.Call) and name == "enumerate" and len(parts) == 2 and source.args:
            yield from self._matched(parts[1], source.args[0])
        elif isinstance(source, ast.Call) and name in WRAPPERS and name not in ZIPS and source.args:
            yield from self._matched(target, source.args[0])
        elif not isinstance(source, ast.Call) and self._is_loader(source):
            yield target


def _is_key(node: ast.AST) -> bool:
    key = node.slice if isinstance(node, ast.Subscript) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop"):
        key = node.args[0] if node.args else None
    return isinstance(key, ast.Constant) and isinstance(key.value, str) and key.value in DICT_KEYS


def _is_pair(target: ast.expr) -> bool:
    return isinstance(target, ast.Tuple | ast.List) and len(target.elts) == 2


def _last_name(value: ast.expr) -> str:
    return dotted(value.func).rpartition(".")[2] if isinstance(value, ast.Call) else ""
