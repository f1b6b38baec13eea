"""Names and attributes that only ever hold numbers, texts and the like, which nothing can change in place."""

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Sequence

from lethe.submission.notebook_statements import Statement, Statements
from lethe.submission.own_loop import dotted

IMMUTABLE_CALLS = re.compile(
    r"^(abs|bool|float|int|len|max|min|range|round|str|sum|torch\.device|os\.(getenv|path\.\w+|environ\.get)"
    r"|torch\.cuda\.is_available|pathlib\.Path|Path|time\.time)$"
)
PLAIN_TYPES = frozenset({"int", "float", "str", "bool"})


def binders(statements: Sequence[Statement]) -> dict[str, list[Statement]]:
    """Return the statements that bind each name."""
    binders = defaultdict(list)
    for statement in statements:
        for name in statement.binds:
            binders[name].append(statement)
    return binders


def plain_attributes(statements: Statements) -> frozenset[str]:
    """Return the attributes that are only ever set to numbers, texts and the like, such as `cfg.batch_size`."""
    values: dict[str, bool] = {}
    for node in (node for statement in statements.all for node in ast.walk(statement.node)):
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        plain = _is_value(node.value, ())
        if isinstance(node, ast.AnnAssign) and node.value is None:
            plain = getattr(node.annotation, "id", "") in PLAIN_TYPES
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
            values[name] = values.get(name, True) and plain
    return frozenset(name for name, plain in values.items() if plain)


def immutable_names(statements: Statements) -> frozenset[str]:
    """Return the names that are only ever bound to numbers, texts and the like."""
    found: set[str] = set()
    for name, bound in binders(statements.all).items():
        if all(isinstance(s.node, ast.Assign | ast.AnnAssign) and _is_value(s.node.value, found) for s in bound):
            found.add(name)
    return frozenset(found)


def _is_value(node: ast.expr | None, known: Collection[str]) -> bool:
    if isinstance(node, ast.Call):
        return bool(IMMUTABLE_CALLS.match(dotted(node.func)))
    if isinstance(node, ast.Name):
        return node.id in known
    if isinstance(node, ast.BinOp | ast.IfExp | ast.Tuple | ast.UnaryOp):
        return all(_is_value(part, known) for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr))
    return isinstance(node, ast.Constant | ast.JoinedStr | ast.Compare)
