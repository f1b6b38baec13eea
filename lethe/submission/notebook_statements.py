"""The statements of a notebook's cells in the order in which they run: what each binds, changes, reads and calls."""

import ast
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from lethe.submission.cell_bodies import parse_cell
from lethe.submission.name_groups import NameGroups
from lethe.submission.own_loop import SAVE, Calls, find_calls, imported_libraries
from lethe.submission.statement_changes import aliases, changed_parameters, changed_roots, executed_nodes
from lethe.submission.statement_reads import (
    Definition,
    Function,
    local_names,
    names_bound,
    own_nodes,
    reads_later,
    reads_now,
)

Import = ast.Import | ast.ImportFrom
Item = TypeVar("Item")


@dataclass(frozen=True)
class Statement:
    """One statement of the top level. cell: from 1. reads: what running it looks up outside itself."""

    node: ast.stmt
    cell: int
    binds: frozenset[str]
    changes: frozenset[str]
    reads: frozenset[str]
    calls: Calls

    @property
    def lines(self) -> tuple[int, int]:
        """Its first and last line in its cell, from 1, decorators included."""
        decorators = self.node.decorator_list if isinstance(self.node, Definition) else []
        first = min([self.node.lineno, *(decorator.lineno for decorator in decorators)])
        return first, self.node.end_lineno or self.node.lineno


@dataclass(frozen=True)
class Statements:
    """All statements, with what holds for the whole notebook.

    definitions: the functions and classes by name, all of one name. later: what their bodies read. changed_inside: the
    globals that they set or change. groups: names that may be one object. modules: names of imports. savers: the
    definitions that write models.
    """

    all: tuple[Statement, ...]
    definitions: dict[str, list[ast.stmt]]
    later: dict[str, frozenset[str]]
    changed_inside: dict[str, frozenset[str]]
    groups: NameGroups
    modules: frozenset[str]
    savers: frozenset[str]


def split_statements(cells: Sequence[str]) -> list[Statement]:
    """Return the statements of cells that are all Python, each looked at by itself."""
    nodes = [(number, node) for number, text in enumerate(cells, start=1) for node in parse_cell(text).body]
    return [_statement(cell, node, {}, frozenset()) for cell, node in nodes]


def read_statements(cells: Sequence[str], function: str) -> Statements:
    """Return the statements of cells that are all Python. What `function` does when it is called counts as nothing."""
    nodes = [(number, node) for number, text in enumerate(cells, start=1) for node in parse_cell(text).body]
    definitions: dict[str, list[ast.stmt]] = defaultdict(list)
    for _cell, node in nodes:
        if isinstance(node, Definition):
            definitions[node.name].append(node)
    imports = (found for _cell, node in nodes for found in executed_nodes(node) if isinstance(found, Import))
    modules = frozenset(name for found in imports for name in names_bound(found))  # those in try and if included
    changers = {
        name: _union(changed_parameters(node, modules) for node in found if isinstance(node, Function))
        for name, found in definitions.items()
        if name != function
    }
    return Statements(
        all=tuple(_statement(cell, node, changers, modules) for cell, node in nodes),
        definitions=definitions,
        later={name: _union(map(reads_later, found)) for name, found in definitions.items()},
        changed_inside={
            name: frozenset(changed for node in found for changed in _globals_changed(node, modules))
            for name, found in definitions.items()
        },
        groups=NameGroups(_without(group, modules) for _cell, node in nodes for group in aliases(node)),
        modules=modules,
        savers=frozenset(
            name for name, found in definitions.items() for node in found if SAVE in find_calls(ast.walk(node)).names
        ),
    )


def _statement(
    cell: int, node: ast.stmt, changers: dict[str, frozenset[str | int]], modules: frozenset[str]
) -> Statement:
    nodes = list(executed_nodes(node))
    return Statement(
        node=node,
        cell=cell,
        binds=names_bound(node),
        changes=frozenset(changed_roots(nodes, changers, modules)),
        reads=reads_now(node),
        calls=find_calls(nodes),
    )


def _globals_changed(node: ast.stmt, modules: frozenset[str]) -> Iterator[str]:
    functions = [node] if isinstance(node, Function) else [item for item in _body(node) if isinstance(item, Function)]
    for function in functions:
        nodes = list(own_nodes(function))
        yield from (name for found in nodes if isinstance(found, ast.Global) for name in found.names)
        own = local_names(function)
        yield from (name for name in changed_roots(nodes, {}, modules) if name not in own)


def _body(node: ast.stmt) -> list[ast.stmt]:
    return node.body if isinstance(node, ast.ClassDef) else []


def _union(sets: Iterable[frozenset[Item]]) -> frozenset[Item]:
    return frozenset(item for found in sets for item in found)


def _without(group: list[str], modules: frozenset[str]) -> list[str]:
    return [name for name in group if name not in modules]


def imported_names(statements: Statements, libraries: Collection[str]) -> Iterator[str]:
    """Yield the names that imports of nothing but these libraries bind."""
    for node in (found.node for found in statements.all):
        if isinstance(node, ast.ImportFrom) and set(imported_libraries(node)) <= set(libraries):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                library = alias.name.partition(".")[0]
                if library in libraries:
                    yield alias.asname or library


def reached_definitions(sources: Sequence[str], function: str) -> list[ast.stmt]:
    """Return the functions and classes that `function` may use, itself included, of sources that are all Python."""
    definitions = defaultdict(list)
    for source in sources:
        for node in parse_cell(source).body:
            for name in names_bound(node):
                definitions[name].append(node)
    reached: dict[int, ast.stmt] = {}
    seen, waiting = {function}, [function]
    while waiting:
        for node in definitions.get(waiting.pop(), ()):
            if id(node) not in reached:
                reached[id(node)] = node
                read = reads_later(node) | reads_now(node)
                if isinstance(node, Import):
                    read |= {alias.name.rpartition(".")[2] for alias in node.names}
                new = read - seen
                seen |= new
                waiting += new
    return list(reached.values())
