"""What can be called in a parsed file, and how: a function, or a class with a method `run`."""

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

POSITIONAL = 4
METHOD = "run"
KNOWN_EXTRAS = frozenset({"class_counts", "class_weights", "device", "param_names", "seed"})
DICT_KEYS = frozenset({"image", "image_id", "age_group", "age", "person_id"})

WRAPPERS = frozenset({"enumerate", "tqdm"})  # of a loader, in a loop over its batches

Style = Literal["dict", "tuple"]
Function = ast.FunctionDef | ast.AsyncFunctionDef


class NotCallable(Exception):
    """It cannot be called as it would be; the message says why, `line` where."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class Entry:
    """Something that can be called: its name, and the known extras that it is to be given by name."""

    name: str
    keywords: tuple[str, ...]


def find_callable(trees: Sequence[ast.Module], name: str, *, signature: str) -> Entry | None:
    """Return the function `name`, else a class of that name, else the only class with a fitting `run`.

    trees: files that share one namespace, in the order in which they are run. Raises NotCallable.
    """
    statements = [node for tree in trees for node in top_level(tree.body)]
    function = _last(node for node in statements if isinstance(node, Function) and node.name == name)
    if isinstance(function, Function):
        return Entry(name, known_extras(function, signature=signature))
    classes = [node for node in statements if isinstance(node, ast.ClassDef) and _method(node, METHOD)]
    named = [node for node in classes if node.name == name]
    chosen = named or classes
    if len({node.name for node in chosen}) != 1:
        return None
    return Entry(chosen[-1].name, _extras_of_class(chosen[-1], signature=signature))


def top_level(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements that run on import, those in if, try and with included."""
    statements: list[ast.stmt] = []
    for node in body:
        statements.append(node)
        if isinstance(node, ast.If | ast.Try | ast.With):
            for field in ("body", "orelse", "finalbody"):
                statements.extend(top_level(getattr(node, field, [])))
            for handler in getattr(node, "handlers", []):
                statements.extend(top_level(handler.body))
    return statements


def known_extras(function: Function, *, signature: str, bound: int = 0) -> tuple[str, ...]:
    """Return the known extras to give by name. Raises NotCallable.

    bound: leading arguments that the call fills by itself: 1 for a method's self. An extra whose default is anything
    but None keeps it: its author has chosen.
    """
    where = f"{function.name}"
    if isinstance(function, ast.AsyncFunctionDef):
        raise NotCallable(f"{where} is async; define it with plain def", function.lineno)
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    wanted = POSITIONAL + bound
    if len(positional) < wanted and arguments.vararg is None:
        raise NotCallable(
            f"{where} takes {len(positional) - bound} positional arguments,"
            f" it is called with {POSITIONAL}: {signature}",
            function.lineno,
        )
    further = positional[wanted:]
    n_required = max(0, len(positional) - len(arguments.defaults) - wanted)
    required = {argument.arg for argument in further[:n_required]}
    by_position_only = {argument.arg for argument in arguments.posonlyargs}
    pairs = list(zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True))
    required |= {argument.arg for argument, default in pairs if default is None}
    unknown = sorted(required - (KNOWN_EXTRAS - by_position_only))
    if unknown:
        raise NotCallable(
            f"{where} needs {', '.join(unknown)}, which nobody gives; beyond {POSITIONAL} arguments only"
            f" {', '.join(sorted(KNOWN_EXTRAS))} are known, others need defaults",
            function.lineno,
        )
    defaults = zip(positional[::-1], arguments.defaults[::-1], strict=False)
    chosen = {argument.arg for argument, default in defaults if not _is_none(default)}
    chosen |= {argument.arg for argument, default in pairs if default is not None and not _is_none(default)}
    named = {argument.arg for argument in (*further, *arguments.kwonlyargs)} - by_position_only - chosen
    return tuple(sorted(KNOWN_EXTRAS & named))


def sample_style(trees: Sequence[ast.Module]) -> Style:
    """Return how the code reads a batch: by the competition's keys, or by unpacking (inputs, targets).

    Loops such as `for x, y in loader` without any of the keys mean tuples; everything else means dicts.
    """
    nodes = [node for tree in trees for node in ast.walk(tree)]
    if any(_is_key(node) for node in nodes):
        return "dict"
    return "tuple" if any(_unpacks_a_batch(node) for node in nodes) else "dict"


def _extras_of_class(node: ast.ClassDef, *, signature: str) -> tuple[str, ...]:
    run = _method(node, METHOD)
    if run is None:
        return ()
    maker = _method(node, "__init__")
    if maker is not None and _n_required(maker) > 1:
        # Made with (net, retain, forget, validation), run without arguments.
        if _n_required(run) > 1:
            raise NotCallable(
                f"{node.name} wants arguments both to be made and in {METHOD}; take the four of {signature} in one",
                node.lineno,
            )
        return known_extras(maker, signature=signature, bound=1)
    return known_extras(run, signature=signature, bound=1)


def _n_required(function: Function) -> int:
    return len(function.args.posonlyargs) + len(function.args.args) - len(function.args.defaults)


def _method(node: ast.ClassDef, name: str) -> Function | None:
    return next((item for item in node.body if isinstance(item, Function) and item.name == name), None)


def _last(nodes: Iterable[ast.stmt]) -> ast.stmt | None:
    found: ast.stmt | None = None
    for found in nodes:  # noqa: B007 - the last one is what a call would meet
        pass
    return found


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_key(node: ast.AST) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value in DICT_KEYS


def _unpacks_a_batch(node: ast.AST) -> bool:
    if not isinstance(node, ast.For | ast.comprehension):
        return False
    target, source = node.target, node.iter
    while (
        isinstance(source, ast.Call)
        and isinstance(source.func, ast.Name)
        and source.func.id in WRAPPERS
        and source.args
    ):
        if source.func.id == "enumerate" and isinstance(target, ast.Tuple) and len(target.elts) == 2:
            target = target.elts[1]
        source = source.args[0]
    if not (isinstance(target, ast.Tuple | ast.List) and len(target.elts) == 2):
        return False
    return isinstance(source, ast.Name) and any(
        word in source.id.lower() for word in ("load", "retain", "forget", "val")
    )
