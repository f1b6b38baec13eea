"""Which values a statement changes without binding their names: `x[i] = y`, `x.data.fill_(0)`, `setattr(x, ...)`."""

import ast
import builtins
from collections.abc import Collection, Iterable, Iterator, Mapping

from lethe.submission.statement_reads import Function, own_nodes

ARGUMENT_CHANGERS = frozenset(
    {"setattr", "delattr", "shuffle", "put", "copyto", "place", "putmask", "heappush", "heapify", "insort", "next"}
)
BUILTINS = frozenset(dir(builtins))
ANYTHING = "*"  # stands for every name: what exec and globals() may change
NAMESPACES = frozenset({"globals", "locals", "vars"})
# Methods that leave their object as it is, whatever they do to the disk. Any other may change it.
READERS = frozenset(
    """
    abs absolute all any apply argmax argsort as_posix astype chmod clone columns copy count cpu cuda cumsum
    detach dim double encode endswith eq exists expand expanduser flatten float format get glob groupby half
    head hexdigest index int is_absolute is_dir is_file isdigit isnan isoformat item items iterdir iterrows
    itertuples join joinpath keys log long lower lstrip max mean median min mkdir modules most_common mul
    named_buffers named_children named_modules named_parameters nbytes nelement nonzero norm numel numpy open
    parameters permute pow read read_bytes read_text relative_to repeat replace reshape resolve rglob rmdir
    round rstrip shape size softmax sort_values sorted split splitlines sqrt squeeze startswith state_dict std
    strip sub sum symlink_to tail time to_dict to_list to_numpy tolist topk touch transpose type unique unlink
    unsqueeze upper value_counts values var view with_name with_suffix write_bytes write_text zfill
    """.split()  # noqa: SIM905
)


def changed_roots(
    nodes: Iterable[ast.AST], changers: Mapping[str, frozenset[str | int]], modules: Collection[str]
) -> Iterator[str]:
    """Yield the names whose values these nodes change.

    changers: of the notebook's own functions, the parameters (by name and position) that they change. modules: names
    of imports: a call of what is in one does not change it, a value that is put into it does.
    """
    for node in nodes:
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            if not is_backend_switch(node):  # how fast it is, not what
                yield from _root(node)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Call):
            yield from (name for name in _changed_by_call(node, changers) if name not in modules)


def is_backend_switch(node: ast.expr) -> bool:
    """Return whether it is `torch.backends.….…`."""
    while isinstance(node, ast.Attribute):
        if node.attr == "backends" and isinstance(node.value, ast.Name) and node.value.id == "torch":
            return True
        node = node.value
    return False


def executed_nodes(node: ast.stmt) -> Iterator[ast.AST]:
    """Yield the nodes that run with the statement: not the bodies of functions, which run when they are called."""
    waiting: list[ast.AST] = [node]
    while waiting:
        found = waiting.pop()
        yield found
        if isinstance(found, Function):
            waiting += [*found.decorator_list, *found.args.defaults, *(d for d in found.args.kw_defaults if d)]
        elif not isinstance(found, ast.Lambda):
            waiting += ast.iter_child_nodes(found)


def changed_parameters(function: Function, modules: Collection[str]) -> frozenset[str | int]:
    """Return the parameters, by name and position, that a function changes or hands to who may change them.

    modules: names of imports: what is handed to one is not changed.
    """
    nodes = list(own_nodes(function))
    changed = set(changed_roots(nodes, {}, ()))
    handed = {
        argument.id
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if node.func.id not in modules and node.func.id not in BUILTINS
        for argument in node.args
        if isinstance(argument, ast.Name)
    }
    positional = [*function.args.posonlyargs, *function.args.args]
    names = [argument.arg for argument in (*positional, *function.args.kwonlyargs)]
    found = {name for name in names if name in changed or name in handed}
    return frozenset({*found, *(place for place, argument in enumerate(positional) if argument.arg in found)})


def aliases(node: ast.stmt) -> Iterator[list[str]]:
    """Yield groups of names that may stand for one object, or for a part of it, after the statement."""
    for found in executed_nodes(node):
        if isinstance(found, ast.Assign):
            for target in found.targets:
                yield from _same(target, found.value)
        elif isinstance(found, ast.For):
            yield [*_targets(found.target), *_sources(found.iter)]


def _same(target: ast.expr, value: ast.expr) -> Iterator[list[str]]:
    pair = (target, value)
    if all(isinstance(side, ast.Tuple | ast.List) for side in pair):
        targets, values = (getattr(side, "elts", []) for side in pair)
        if len(targets) == len(values):
            for one, other in zip(targets, values, strict=True):
                yield from _same(one, other)
            return
    yield [*_targets(target), *_sources(value)]


def _changed_by_call(node: ast.Call, changers: Mapping[str, frozenset[str | int]]) -> Iterator[str]:
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if isinstance(function, ast.Name) and name == "exec":
        yield ANYTHING
    if isinstance(function, ast.Attribute) and name not in READERS:
        yield from _root(function.value)
    arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
    if name in ARGUMENT_CHANGERS or name.endswith("_"):
        for argument in arguments:
            yield from _root(argument)
    for keyword in node.keywords:
        if keyword.arg == "out":
            yield from _root(keyword.value)
    if isinstance(function, ast.Name) and (changed := changers.get(name)):
        places: list[tuple[str | int | None, ast.expr]] = [*enumerate(node.args)]
        places += [(keyword.arg, keyword.value) for keyword in node.keywords]
        for place, argument in places:
            if place in changed:
                yield from _root(argument)


def _root(node: ast.expr) -> Iterator[str]:
    """Yield the name that an expression begins at: x of `x.data[0].view(-1)`."""
    while True:
        if isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        else:
            break
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in NAMESPACES:
        if node.args:
            yield from _root(node.args[0])
        else:
            yield ANYTHING


def _targets(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Tuple | ast.List):
        for item in target.elts:
            yield from _targets(item)
    else:
        yield from _root(target)


def _sources(value: ast.expr) -> Iterator[str]:
    if isinstance(value, ast.Tuple | ast.List | ast.Set):
        parts: list[ast.expr] = value.elts
    elif isinstance(value, ast.Dict):
        parts = value.values
    elif isinstance(value, ast.IfExp):
        parts = [value.body, value.orelse]
    elif isinstance(value, ast.BoolOp):
        parts = value.values
    elif isinstance(value, ast.Call) and getattr(value.func, "id", "") in ("enumerate", "zip", "list", "tuple", "dict"):
        parts = value.args
    else:
        yield from _root(value)
        return
    for part in parts:
        yield from _sources(part)
