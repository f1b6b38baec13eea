"""Which names a statement of the top level reads from outside itself, and which it binds. Nothing is run."""

import ast
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Function = ast.FunctionDef | ast.AsyncFunctionDef


def reads_now(node: ast.stmt) -> frozenset[str]:
    """Return the names that running the statement looks up. Of a function or class, its body's calls are later."""
    reads = _Reads(later=not isinstance(node, Definition))
    reads.visit(node)
    return frozenset(reads.found)


def reads_later(node: ast.stmt) -> frozenset[str]:
    """Return the names that a function's or class's body looks up when it is called; of others, nothing."""
    if not isinstance(node, Definition):
        return frozenset()
    reads = _Reads(later=True)
    reads.visit(node)
    return frozenset(reads.found) - {node.name}


def names_bound(node: ast.stmt) -> frozenset[str]:
    """Return the names that running the statement binds, or may bind, at the top level."""
    return frozenset(_bound(node))


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


class _Reads(ast.NodeVisitor):
    """Names that are read before the statement itself has certainly bound them.

    later: whether bodies of functions count as well. What a branch binds counts after it only if both branches do.
    """

    def __init__(self, *, later: bool) -> None:
        self.found: set[str] = set()
        self._later = later
        self._bound: dict[str, int] = {}
        self._order: list[str] = []

    @contextmanager
    def _branch(self) -> Iterator[list[str]]:
        """Take back, at its end, what was bound within; the names are in the list then."""
        start, names = len(self._order), list[str]()
        yield names
        names += self._order[start:]
        del self._order[start:]
        for name in names:
            self._bound[name] -= 1

    def _bind(self, names: Iterable[str]) -> None:
        for name in names:
            if not self._bound.get(name):
                self._bound[name] = 1
                self._order.append(name)

    def _all(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self._bind([node.id])
        elif not self._bound.get(node.id):
            self.found.add(node.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._all([node.value, *node.targets])

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name) and not self._bound.get(node.target.id):
            self.found.add(node.target.id)
        self._all([node.value, node.target])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._all([node.annotation, node.value, node.target if node.value else None])

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._all([node.value, node.target])

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self._all([node.iter, node.target])
        with self._branch():
            self._all(node.body)
        with self._branch():
            self._all(node.orelse)

    visit_AsyncFor = visit_For  # noqa: N815

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        with self._branch():
            self._all(node.body)
        with self._branch():
            self._all(node.orelse)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        with self._branch() as first:
            self._all(node.body)
        with self._branch() as second:
            self._all(node.orelse)
        self._bind(set(first) & set(second))

    def visit_Try(self, node: ast.Try | ast.TryStar) -> None:
        with self._branch():
            self._all([*node.body, *node.orelse])
        for handler in node.handlers:
            with self._branch():
                self._bind([handler.name] if handler.name else [])
                self._all([handler.type, *handler.body])
        self._all(node.finalbody)

    visit_TryStar = visit_Try  # noqa: N815

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        for case in node.cases:
            with self._branch():
                self._bind(_bound(case.pattern))
                self._all([case.pattern, case.guard, *case.body])

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            self._all([item.context_expr, item.optional_vars])
        self._all(node.body)

    visit_AsyncWith = visit_With  # noqa: N815

    def _visit_comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        with self._branch():
            for generator in node.generators:
                self._all([generator.iter, generator.target, *generator.ifs])
            self._all([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = _visit_comprehension  # noqa: N815

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        self._bind(_bound(node))

    visit_ImportFrom = visit_Import  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._all([*node.args.defaults, *node.args.kw_defaults])
        with self._branch():
            self._bind(_arguments(node.args))
            self.visit(node.body)

    def visit_FunctionDef(self, node: Function) -> None:
        self._all([*node.decorator_list, *node.args.defaults, *node.args.kw_defaults, *_annotations(node)])
        if self._later:
            with self._branch():
                self._bind(local_names(node))
                self._all(node.body)
        self._bind([node.name])

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._all([*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)])
        with self._branch():
            self._all(item for item in node.body if not isinstance(item, Function))
        # A method does not see the names of its class; within the class's own statements they are seen.
        self._all(item for item in node.body if isinstance(item, Function))
        self._bind([node.name])


def _annotations(node: Function) -> Iterator[ast.expr | None]:
    everything = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg)
    yield from (argument.annotation for argument in everything if argument is not None)
    yield node.returns


def _arguments(arguments: ast.arguments) -> Iterator[str]:
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        yield argument.arg
    yield from (rest.arg for rest in (arguments.vararg, arguments.kwarg) if rest is not None)


def local_names(function: Function) -> set[str]:
    """Return the names that are the function's own wherever they stand in it, its arguments included."""
    shared = {name for node in own_nodes(function) if isinstance(node, ast.Global) for name in node.names}
    return {*_arguments(function.args), *(name for node in function.body for name in _bound(node))} - shared


def own_nodes(function: Function) -> Iterator[ast.AST]:
    """Yield what lies in a function but in no function or class within it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Definition):
            waiting += ast.iter_child_nodes(node)
