"""What a notebook's own loop passes to its function beyond the four arguments: it is bound, so that each run has it."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lethe.submission.left_out import LeftOut
from lethe.submission.loop_work import LoopIsNeeded
from lethe.submission.signatures import KNOWN_EXTRAS, POSITIONAL
from lethe.submission.statement_reads import Function, names_bound, own_nodes

SHOWN = 80


@dataclass(frozen=True)
class Bound:
    """Arguments to bind to the function, as Python, and the names that they read."""

    text: str = ""
    reads: frozenset[str] = frozenset()

    def line(self, function: str) -> str:
        """Return the statement that binds them."""
        return f'{function} = __import__("functools").partial({function}, {self.text})'


def bound_arguments(
    calls: Sequence[ast.Call],
    definitions: Sequence[ast.stmt],
    *,
    function: str,
    scopes: Sequence[ast.stmt],
    cell: int,
) -> Bound:
    """Return what the loop's calls pass beyond the four, of values that stand before the loop.

    definitions: those of the function, the last one counts. scopes: what the calls lie in. Raises LoopIsNeeded for
    values that the loop makes.
    """
    definition = definitions[-1] if definitions and isinstance(definitions[-1], Function) else None
    found = [dict(_further(call, definition)) for call in calls]
    first = found[0] if found else {}
    for call, extras in zip(calls, found, strict=True):
        if [*map(_text, extras.items())] != [*map(_text, first.items())]:
            raise _refused(call, cell, f"the loop calls {function} with different arguments; choose one in {function}")
        for name, value in extras.items():
            made = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)} & _made_in(scopes)
            if made or name == "":
                shown = _text((name, value))[:SHOWN]
                raise _refused(
                    call,
                    cell,
                    f"the loop passes `{shown}`, which each run here cannot be given; make it inside {function}",
                )
    reads = {node.id for value in first.values() for node in ast.walk(value) if isinstance(node, ast.Name)}
    return Bound(", ".join(map(_text, first.items())), frozenset(reads))


def _further(call: ast.Call, definition: Function | None) -> Iterator[tuple[str, ast.expr]]:
    """Yield names and values; the name is empty where none is known, and `**` for a mapping."""
    arguments = definition.args if definition else ast.arguments([], [], None, [], [], None, [])
    positional = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    defaults = dict(zip(positional[::-1], arguments.defaults[::-1], strict=False))
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    defaults |= {argument.arg: value for argument, value in pairs if value is not None}
    given: list[tuple[str, ast.expr]] = []
    if not any(isinstance(argument, ast.Starred) for argument in call.args):
        names = positional[POSITIONAL:] if not arguments.posonlyargs else []
        for place, value in enumerate(call.args[POSITIONAL:]):
            given.append((names[place] if place < len(names) else "", value))
    given += [("**" if keyword.arg is None else keyword.arg, keyword.value) for keyword in call.keywords]
    for name, value in given:
        default = defaults.get(name)
        is_given_here = name in KNOWN_EXTRAS and (default is None or _is_none(default))
        same = default is not None and ast.dump(default) == ast.dump(value)
        if name not in positional[:POSITIONAL] and not is_given_here and not same:
            yield name, value


def _made_in(scopes: Sequence[ast.stmt]) -> set[str]:
    made: set[str] = set()
    for scope in scopes:
        if isinstance(scope, Function):
            arguments = (node.arg for node in ast.walk(scope.args) if isinstance(node, ast.arg))
            made |= {*arguments, *(name for node in scope.body for name in names_bound(node))}
            made -= {name for node in own_nodes(scope) if isinstance(node, ast.Global) for name in node.names}
        else:
            made |= names_bound(scope)
    return made


def _text(pair: tuple[str, ast.expr]) -> str:
    name, value = pair
    shown = ast.unparse(value)
    return f"**{shown}" if name == "**" else f"{name}={shown}" if name else shown


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _refused(call: ast.Call, cell: int, message: str) -> LoopIsNeeded:
    return LoopIsNeeded(message, LeftOut(cell, call.lineno, call.end_lineno or call.lineno, ""))
