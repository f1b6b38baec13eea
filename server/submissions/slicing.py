"""Of a notebook's statements, those that its function needs: its loop over runs and its file reading stay out.

A run calls the function itself, with its own loaders and seed. So of the top level only that is kept which binds a
name that the function uses, directly or through what it calls; everything else is blanked, line by line, so that
line numbers stay what they are. Nothing is run here.
"""

import ast
import symtable
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from server.submissions.parsing import parse_python, without_a_word

STAR = "*"
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Import = ast.Import | ast.ImportFrom


@dataclass(frozen=True)
class Statement:
    """One statement of the top level: which names it binds, changes and reads."""

    node: ast.stmt
    binds: frozenset[str]
    changes: frozenset[str]
    reads: frozenset[str]


def keep_what_is_needed(cells: Sequence[str], function: str) -> list[str]:
    """Return the cells with every statement blanked that `function` does not need. All cells must be Python."""
    statements = [_statements(text) for text in cells]
    kept = _needed([statement for cell in statements for statement in cell], function)
    return [
        _blanked(
            text,
            [statement.node for statement in cell if id(statement) not in kept],
            [statement.node for statement in cell if id(statement) in kept],
        )
        for text, cell in zip(cells, statements, strict=True)
    ]


def _needed(statements: Sequence[Statement], function: str) -> set[int]:
    """Return which statements the function needs, each looked at once for each name that leads to it."""
    makers = _makers(statements, function)
    kept = {id(statement) for statement in statements if _is_always_kept(statement)}
    names = {function}.union(*(statement.reads for statement in statements if id(statement) in kept))
    waiting = list(names)
    while waiting:
        for statement in makers.get(waiting.pop(), ()):
            if id(statement) not in kept:
                kept.add(id(statement))
                waiting += statement.reads - names
                names |= statement.reads
    return kept


def _makers(statements: Sequence[Statement], function: str) -> dict[str, list[Statement]]:
    """Return, for each name, the statements that make it what it is."""
    modules = {name for statement in statements if isinstance(statement.node, Import) for name in statement.binds}
    makers: dict[str, list[Statement]] = {}
    for statement in statements:
        if not isinstance(statement.node, Definition) and function in statement.reads:
            continue  # the notebook's own use of the function: its loop
        # What changes a module makes nothing: `random.seed(0)` must not fix the seed of every run.
        for name in statement.binds | (statement.changes - modules):
            makers.setdefault(name, []).append(statement)
    return makers


def _is_always_kept(statement: Statement) -> bool:
    node = statement.node
    return STAR in statement.binds or (isinstance(node, ast.ImportFrom) and node.module == "__future__")


def _statements(text: str) -> list[Statement]:
    lines = text.split("\n")
    return [
        Statement(
            node=node,
            binds=frozenset(_bound(node)),
            changes=frozenset(_changed(node)),
            reads=frozenset(_read(node, lines)),
        )
        for node in parse_python(text).body
    ]


def _bound(node: ast.stmt) -> Iterable[str]:
    """Names that the statement gives a value at the top level."""
    if isinstance(node, Definition):
        return [node.name]
    if isinstance(node, Import):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    return _bound_inside(node)


def _bound_inside(node: ast.AST) -> Iterable[str]:
    """Names bound by a statement and by those within it, but not within functions and classes."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Definition):
            yield child.name
        elif isinstance(child, Import):
            yield from _bound(child)
        elif isinstance(child, ast.ExceptHandler) and child.name:
            yield child.name
            yield from _bound_inside(child)
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id
        elif not isinstance(child, ast.Lambda | ast.comprehension):
            yield from _bound_inside(child)


def _changed(node: ast.stmt) -> Iterable[str]:
    """Names whose value a statement changes without binding them: `x[i] = y`, `x.a = y`, `x.update(y)`."""
    if isinstance(node, ast.Assign):
        return [name for target in node.targets if (name := _root(target))]
    if isinstance(node, ast.AugAssign | ast.AnnAssign):
        return [name] if (name := _root(node.target)) else []
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        return [node.value.func.value.id] if isinstance(node.value.func.value, ast.Name) else []
    return []


def _root(target: ast.expr) -> str:
    while isinstance(target, ast.Attribute | ast.Subscript):
        target = target.value
    return target.id if isinstance(target, ast.Name) else ""


def _read(node: ast.stmt, lines: Sequence[str]) -> Iterable[str]:
    """Names of the top level that a statement reads, now or when what it defines is called."""
    if not isinstance(node, Definition):
        return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    first, last = _lines_of(node)
    with without_a_word():
        table = symtable.symtable("\n".join(lines[first - 1 : last]), "cell", "exec")
    return set(_globals(table))


def _globals(table: symtable.SymbolTable) -> Iterable[str]:
    for symbol in table.get_symbols():
        if symbol.is_global() or (table.get_type() == "module" and symbol.is_referenced()):
            yield symbol.get_name()
    for child in table.get_children():
        yield from _globals(child)


def _lines_of(node: ast.stmt) -> tuple[int, int]:
    decorators = node.decorator_list if isinstance(node, Definition) else []
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    return first, node.end_lineno or node.lineno


def _blanked(text: str, dropped: Sequence[ast.stmt], kept: Sequence[ast.stmt]) -> str:
    lines = text.split("\n")
    stay = {number for node in kept for number in range(_lines_of(node)[0], _lines_of(node)[1] + 1)}
    for node in dropped:
        first, last = _lines_of(node)
        for number in range(first, last + 1):
            if number not in stay:
                lines[number - 1] = ""
    return "\n".join(lines)
