"""What a notebook's own loop does besides calling its function, which a run of the function alone would not do.

Looked at is the statement that runs the function and saves models, with the functions that it calls it by. What
prepares, loads, casts, saves or measures a model is the competition's own; what changes the model is not.
"""

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from lethe.submission.left_out import LeftOut
from lethe.submission.model_changes import MODEL_ARGUMENTS, ModelChanges
from lethe.submission.notebook_statements import Statement, Statements
from lethe.submission.own_loop import dotted
from lethe.submission.statement_reads import Definition, Function

SHOWN = 60
MOST_SHOWN = 5
CONTEXTS = re.compile(r"(^|\.)(autocast|no_grad|enable_grad|inference_mode|set_grad_enabled)$")
SETTINGS = re.compile(r"^torch\.(set_default_\w+|set_grad_enabled|inference_mode)$")


class LoopIsNeeded(Exception):
    """What the function needs, or what its author wants done to models, is in the loop. place: its lines."""

    def __init__(self, message: str, place: LeftOut) -> None:
        super().__init__(message)
        self.place = place


def calls_of(nodes: Iterable[ast.AST], aliases: Collection[str]) -> list[ast.Call]:
    """Return the calls of the function."""
    return [node for node in nodes if isinstance(node, ast.Call) and dotted(node.func) in aliases]


def loop_scopes(
    loop: Statement, statements: Statements, *, aliases: Collection[str], runners: Collection[str]
) -> list[ast.stmt]:
    """Return the loop, and the notebook's functions that it runs the function by, where they call it."""
    names, waiting = set[str](), list(loop.reads)
    while waiting:
        name = waiting.pop()
        if name in runners and name not in aliases and name not in names:
            names.add(name)
            waiting += statements.later.get(name, ())
    definitions = (node for name in sorted(names) for node in statements.definitions.get(name, ()))
    functions = (node for top in definitions for node in ast.walk(top) if isinstance(node, Function))
    return [scope for scope in (loop.node, *functions) if calls_of(_own_nodes(scope), aliases)]


def check_loop_work(
    scope: ast.stmt, statements: Statements, *, function: str, aliases: Collection[str], cell: int
) -> None:
    """Raise LoopIsNeeded if a scope does more to a model than to call the function on it.

    cell: of the loop; lines of functions that lie in another cell are found there.
    """
    found = sorted(_Work(scope, statements, aliases).found(), key=lambda node: (node.lineno, node.col_offset))
    if not found:
        return
    shown = [f"`{_shown(node)}` (line {node.lineno})" for node in found[:MOST_SHOWN]]
    more = f" and {len(found) - MOST_SHOWN} more" if len(found) > MOST_SHOWN else ""
    place = LeftOut(_cell_of(found[0], statements, cell), found[0].lineno, found[-1].end_lineno or found[-1].lineno, "")
    raise LoopIsNeeded(
        f"the loop also does {', '.join(shown)}{more}; here each run only calls {function}: do it inside {function}",
        place,
    )


def _shown(node: ast.expr | ast.stmt) -> str:
    first = ast.unparse(node).splitlines()[0]
    return first if len(first) <= SHOWN else f"{first[:SHOWN]}..."


class _Work:
    def __init__(self, scope: ast.stmt, statements: Statements, aliases: Collection[str]) -> None:
        self._nodes = list(_own_nodes(scope))
        self._scope, self._statements, self._aliases = scope, statements, aliases
        self._calls = calls_of(self._nodes, aliases)
        self._changes = ModelChanges(self._nodes, self._model_names(), statements)

    def found(self) -> Iterator[ast.expr | ast.stmt]:
        """Yield what changes models, or how the function runs."""
        yield from _second_calls(self._calls, self._scope)
        for node in self._nodes:
            if isinstance(node, ast.With | ast.AsyncWith):
                if calls_of(ast.walk(node), self._aliases):
                    yield from (item.context_expr for item in node.items if CONTEXTS.search(_called(item.context_expr)))
            elif isinstance(node, ast.Call) and SETTINGS.match(dotted(node.func)):
                yield node
        first = min((call.lineno for call in self._calls), default=0)
        yield from self._changes.found(but=self._calls, replaced_from=first)

    def _model_names(self) -> set[str]:
        named = [keyword.value for call in self._calls for keyword in call.keywords if keyword.arg in MODEL_ARGUMENTS]
        first = [call.args[0] for call in self._calls if call.args]
        names = {node.id for value in (*named, *first) for node in ast.walk(value) if isinstance(node, ast.Name)}
        assigned = (node for node in self._nodes if isinstance(node, ast.Assign) and node.value in self._calls)
        names -= self._statements.modules
        return names | {target.id for node in assigned for target in node.targets if isinstance(target, ast.Name)}


def _second_calls(calls: Sequence[ast.Call], scope: ast.stmt) -> Iterator[ast.expr]:
    """Yield a further call of the function, if one run of the scope comes by two of them."""
    body = scope.body if isinstance(scope, Definition) else [scope]
    passed = _passed(body, calls)
    yield from passed[1:2]


def _passed(body: Sequence[ast.stmt], calls: Sequence[ast.Call]) -> list[ast.Call]:
    """Return the calls that one way through these statements comes by: of branches, those of the longest."""
    found: list[ast.Call] = []
    for node in body:
        if isinstance(node, ast.If):
            found += _longest([_passed(branch, calls) for branch in (node.body, node.orelse)])
        elif isinstance(node, ast.Try):
            ways = [[*node.body, *node.orelse], *(handler.body for handler in node.handlers)]
            found += _longest([_passed(way, calls) for way in ways])
            found += _passed(node.finalbody, calls)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.While | ast.With | ast.AsyncWith):
            found += _passed(node.body, calls)
        elif not isinstance(node, Definition):
            held = list(ast.walk(node))
            found += [call for call in calls if call in held]
    return found


def _longest(ways: list[list[ast.Call]]) -> list[ast.Call]:
    return max(ways, key=len)


def _own_nodes(scope: ast.stmt) -> Iterator[ast.AST]:
    """Yield what lies in the scope but in no function within it."""
    waiting: list[ast.AST] = [*scope.body] if isinstance(scope, Definition) else [scope]
    while waiting:
        node = waiting.pop(0)
        yield node
        if not isinstance(node, Definition):
            waiting += ast.iter_child_nodes(node)


def _cell_of(node: ast.expr | ast.stmt, statements: Statements, otherwise: int) -> int:
    """Return the cell that a node lies in."""
    holders = (found for found in statements.all if any(inner is node for inner in ast.walk(found.node)))
    return next((found.cell for found in holders), otherwise)


def _called(node: ast.expr) -> str:
    return dotted(node.func if isinstance(node, ast.Call) else node)
