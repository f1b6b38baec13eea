"""Makes one self-contained file of a method that imports shared functions."""

import ast
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lethe.errors import InvalidInput

SHARED = "lethe.methods."
_ONE_AT_A_TIME = threading.Lock()  # Python 3.11 cannot build syntax trees in two threads at once


def parse(source: str) -> ast.Module:
    """Return the syntax tree of Python source. May be called in several threads."""
    with _ONE_AT_A_TIME:
        return ast.parse(source)


def inline(source: str) -> str:
    """Return a method's source with what it imports from `lethe.methods` put into it.

    Shared constants come before the method's own, shared functions and classes after. A source that imports nothing
    from there is returned as it is. Raises InvalidInput for a name that the module does not have.
    """
    tree = parse(source)
    nodes = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    taken = [
        (_module(node.module or ""), node.names)
        for node in nodes
        if isinstance(node, ast.ImportFrom) and _is_shared(node)
    ]
    if not taken:
        return source
    parts = [part for module, names in taken for part in module.closure(alias.name for alias in names)]
    constants = [text for node, text in parts if isinstance(node, ast.Assign)]
    functions = [text for node, text in parts if not isinstance(node, ast.Assign)]
    lines = source.split("\n")
    own = "\n".join(lines[nodes[-1].end_lineno :]).strip("\n")
    body = "\n\n\n".join(["\n".join([*constants, own]), *functions]) + "\n"
    used = {node.id for node in ast.walk(parse(body)) if isinstance(node, ast.Name)}
    imports = {each for node in nodes if not _is_shared(node) for each in _imports(node)}
    imports |= {each for module, _ in taken for each in module.imports}
    header = _import_lines(each for each in imports if each.here in used)
    return "\n".join([*lines[: nodes[0].lineno - 1], *header, "", body])


@dataclass(frozen=True)
class _Import:
    """`import module`, or `from module import name`. here: what it is called in the file."""

    module: str
    name: str
    here: str


@dataclass(frozen=True)
class _Module:
    """What a module of shared functions defines, with its text, and what it imports."""

    name: str
    defined: dict[str, tuple[ast.stmt, str]]
    imports: frozenset[_Import]

    def closure(self, names: Iterable[str]) -> list[tuple[ast.stmt, str]]:
        """Return what these names are and what they use of the module, in the module's order."""
        wanted, found = list(names), set()
        while wanted:
            name = wanted.pop()
            if name not in self.defined:
                raise InvalidInput(f"{self.name} has no {name!r}; it has {', '.join(self.defined)}")
            if name not in found:
                found.add(name)
                used = {node.id for node in ast.walk(self.defined[name][0]) if isinstance(node, ast.Name)}
                wanted += used & self.defined.keys()
        return [part for name, part in self.defined.items() if name in found]


@cache
def _module(name: str) -> _Module:
    source = (Path(__file__).parent / f"{name.removeprefix(SHARED).replace('.', '/')}.py").read_text("utf-8")
    tree, lines = parse(source), source.split("\n")
    defined: dict[str, tuple[ast.stmt, str]] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            start = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            defined[node.name] = (node, "\n".join(lines[start - 1 : node.end_lineno]))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            defined[node.targets[0].id] = (node, "\n".join(lines[node.lineno - 1 : node.end_lineno]))
    return _Module(name, defined, frozenset(each for node in tree.body for each in _imports(node)))


def _is_shared(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and (node.module or "").startswith(SHARED)


def _imports(node: ast.stmt) -> list[_Import]:
    if isinstance(node, ast.Import):
        return [_Import(alias.name, "", alias.asname or alias.name.partition(".")[0]) for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [_Import(node.module or "", alias.name, alias.asname or alias.name) for alias in node.names]
    return []


def _import_lines(imports: Iterable[_Import]) -> list[str]:
    """Return import statements: the standard library, then the rest, each sorted as ruff sorts them."""
    found = sorted(imports, key=lambda each: (each.module, each.name))
    standard = [each for each in found if each.module.partition(".")[0] in sys.stdlib_module_names]
    other = [each for each in found if each not in standard]
    blocks = [_block(block) for block in (standard, other) if block]
    return [line for block in blocks for line in ["", *block]][1:]


def _block(imports: list[_Import]) -> list[str]:
    plain = [f"import {each.module}" for each in imports if not each.name]
    modules = dict.fromkeys(each.module for each in imports if each.name)
    named = {module: [each.name for each in imports if each.module == module and each.name] for module in modules}
    return [*plain, *(f"from {module} import {', '.join(names)}" for module, names in named.items())]
