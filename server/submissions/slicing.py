"""Of a notebook's statements, those that its function needs: its loop over runs and its file reading stay out.

A run calls the function itself, with its own loaders and seed. So of the top level only that is kept which binds a
name that the function uses, directly or through what it calls; everything else is blanked, line by line, so that
line numbers stay what they are. Nothing is run here.
"""

import ast
import symtable
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

STAR = "*"
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Import = ast.Import | ast.ImportFrom


@dataclass(frozen=True)
class Statement:
    """One statement of the top level: which cell it stands in, which names it binds, changes and reads."""

    cell: int
    node: ast.stmt
    binds: frozenset[str]
    changes: frozenset[str]
    reads: frozenset[str]


def keep_what_is_needed(cells: Sequence[str], function: str) -> list[str]:
    """Return the cells with every statement blanked that `function` does not need. All cells must be Python."""
    statements = [_statement(number, node, text) for number, text in enumerate(cells) for node in ast.parse(text).body]
    kept = _needed(statements, function)
    return [
        _blanked(
            text,
            [s.node for s in statements if s.cell == number and id(s) not in kept],
            [s.node for s in statements if s.cell == number and id(s) in kept],
        )
        for number, text in enumerate(cells)
    ]


def _needed(statements: Sequence[Statement], function: str) -> set[int]:
    names, kept = {function}, set[int]()
    modules = {name for statement in statements if isinstance(statement.node, Import) for name in statement.binds}
    growing = True
    while growing:
        growing = False
        for statement in statements:
            if id(statement) in kept or not _is_wanted(statement, names - modules, names, function):
                continue
            kept.add(id(statement))
            names |= statement.reads
            growing = True
    return kept


def _is_wanted(statement: Statement, values: set[str], names: set[str], function: str) -> bool:
    """values: the needed names that are no modules; `random.seed(0)` must not fix the seed of every run."""
    node = statement.node
    if STAR in statement.binds or (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
        return True
    if not isinstance(node, Definition) and function in statement.reads:
        return False  # the notebook's own use of the function: its loop
    return bool(statement.binds & names or statement.changes & values)


def _statement(cell: int, node: ast.stmt, text: str) -> Statement:
    return Statement(
        cell=cell,
        node=node,
        binds=frozenset(_bound(node)),
        changes=frozenset(_changed(node)),
        reads=frozenset(_read(node, text)),
    )


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


def _read(node: ast.stmt, text: str) -> Iterable[str]:
    """Names of the top level that a statement reads, now or when what it defines is called."""
    if not isinstance(node, Definition):
        return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    first, last = _lines_of(node)
    table = symtable.symtable("\n".join(text.split("\n")[first - 1 : last]), "cell", "exec")
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
