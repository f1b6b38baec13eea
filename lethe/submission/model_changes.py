"""What code changes of the models that it holds: their parameters, layers and states, but not what it makes of them."""

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from lethe.submission.notebook_statements import Statements, imported_names
from lethe.submission.own_loop import QUIET_LIBRARIES, dotted
from lethe.submission.statement_reads import Function

MODEL_ARGUMENTS = frozenset({"net", "model", "network"})
CHANGES = frozenset(
    {"add_module", "apply", "register_buffer", "register_parameter", "reset_parameters", "set_submodule"}
)
IN_PLACE = re.compile(r"[^_]_$")
CASTS = frozenset(
    {"bfloat16", "clone", "contiguous", "cpu", "cuda", "detach", "float", "half", "is_floating_point", "to"}
)
# Methods of any object that make it a model, and what a model holds.
HOLDINGS = frozenset(
    """
    buffers children modules named_buffers named_children named_modules named_parameters parameters state_dict
    """.split()  # noqa: SIM905
)
HANDING_ON = HOLDINGS | CASTS | {"eval", "get", "get_parameter", "get_submodule", "items", "train", "values", "view"}
# Functions whose result holds their arguments, or stands for a copy of them.
WRAPPERS = frozenset(
    "DataParallel chain copy deepcopy dict enumerate filter iter list next reversed sorted tuple zip".split()  # noqa: SIM905
)
HARMLESS_LIBRARIES = QUIET_LIBRARIES - {"torch", "torchvision"}
LEAVES_MODELS = re.compile(
    r"^torch\.(compile|load|no_grad)$|^torch\.(optim|cuda)\.|\.(DataParallel|manual_seed)$"
    r"|(^|\.)(display|dump|export|info|log|print|save|show|summary|watch|write)(_\w+)?$"
)
OPTIMIZER = re.compile(r"(^|[._])optim|(^|[._])opt\d*($|[._])", re.IGNORECASE)
PASSES = 4  # names that stand for a part of what another name stands for


class ModelChanges:
    """What some nodes of one scope change of models. models: the names that stand for one there."""

    def __init__(self, nodes: Iterable[ast.AST], models: Collection[str], statements: Statements) -> None:
        self._nodes = list(nodes)
        self._models, self._statements = frozenset(models), statements
        self._harmless = frozenset(imported_names(statements, HARMLESS_LIBRARIES))
        self._parts = set(models)
        self._inner: dict[int, bool] = {}
        for _ in range(PASSES):
            self._bind_inner()
            self._parts |= {name for targets, value in self._bindings() if self.is_part(value) for name in targets}
        made = (node for node in self._nodes if isinstance(node, ast.Assign) and OPTIMIZER.search(_called(node.value)))
        self._optimizers = {dotted(target) for node in made for target in node.targets}
        self._values = {
            id(target): node.value for node in self._nodes if isinstance(node, ast.Assign) for target in node.targets
        }
        self._dropped = {id(node.value) for node in self._nodes if isinstance(node, ast.Expr)}

    def found(self, *, but: Collection[ast.Call] = (), replaced_from: int = 0) -> Iterator[ast.expr]:
        """Yield calls and targets that change a model.

        but: calls that are not looked at. replaced_from: the line after which a library's value may not replace one.
        """
        for node in self._nodes:
            if isinstance(node, ast.Call) and node not in but:
                if self._changes(node, replaced_from):
                    yield node
            elif isinstance(node, ast.Attribute | ast.Subscript) and self._is_stored(node):
                yield node

    def is_part(self, value: ast.AST) -> bool:
        """Return whether a value is a model, or something of it that changes with it."""
        if isinstance(value, ast.Name):
            return self._inner.get(id(value), value.id in self._parts)
        if isinstance(value, ast.Attribute):
            return value.attr in MODEL_ARGUMENTS or dotted(value) in self._parts or self.is_part(value.value)
        if isinstance(value, ast.Call):
            return self._hands_on(value)
        if isinstance(value, ast.Subscript | ast.Starred | ast.DictComp):
            return self.is_part(value.value)
        if isinstance(value, ast.ListComp | ast.GeneratorExp):
            return self.is_part(value.elt)
        held = value.elts if isinstance(value, ast.List | ast.Tuple | ast.Set) else []
        return any(map(self.is_part, value.values if isinstance(value, ast.Dict) else held))

    def _hands_on(self, call: ast.Call) -> bool:
        method = method_of(call)
        if isinstance(call.func, ast.Attribute) and method in HANDING_ON and self.is_part(call.func.value):
            return True
        return method in HOLDINGS or (
            _called(call).rpartition(".")[2] in WRAPPERS and any(map(self.is_part, call.args))
        )

    def _bind_inner(self) -> None:
        """Note which names within comprehensions, that are bound there, stand for parts."""
        for node in self._nodes:
            for generator in getattr(node, "generators", ()):
                bound, part = _names(generator.target), self.is_part(generator.iter)
                self._inner |= {id(name): part for name in ast.walk(node) if getattr(name, "id", "") in bound}

    def _bindings(self) -> Iterator[tuple[list[str], ast.expr]]:
        for node in self._nodes:
            if isinstance(node, ast.Assign):
                yield (
                    [dotted(target) for target in node.targets if isinstance(target, ast.Name | ast.Attribute)],
                    (node.value),
                )
            elif isinstance(node, ast.For | ast.AsyncFor):
                yield _names(node.target), node.iter

    def _changes(self, call: ast.Call, replaced_from: int) -> bool:
        method, name = method_of(call), dotted(call.func)
        root = name.partition(".")[0]
        if method == "backward" or (method == "step" and self._is_optimizer(name.rpartition(".")[0])):
            return True
        in_place = bool(IN_PLACE.search(name.rpartition(".")[2]))
        if isinstance(call.func, ast.Attribute) and (in_place or method in CHANGES) and self.is_part(call.func.value):
            return not (method in ("share_memory_", "requires_grad_") and all(map(_is_true, call.args)))
        if not any(map(self.is_part, (*call.args, *(keyword.value for keyword in call.keywords)))):
            return False
        if root in self._statements.definitions:
            return _trains(call, self, self._statements)
        if root not in self._statements.modules or root in self._harmless or LEAVES_MODELS.search(name):
            return False
        return in_place or id(call) in self._dropped or self._replaces(call, replaced_from)

    def _is_optimizer(self, name: str) -> bool:
        return name in self._optimizers or bool(OPTIMIZER.search(name))

    def _replaces(self, call: ast.Call, line: int) -> bool:
        """Return whether its value is taken for the model, after this line."""
        assigned = (node for node in self._nodes if isinstance(node, ast.Assign) and node.value is call)
        targets = (target for node in assigned for target in node.targets)
        return call.lineno > line > 0 and any(getattr(target, "id", "") in self._models for target in targets)

    def _is_stored(self, target: ast.Attribute | ast.Subscript) -> bool:
        """Return whether something is stored in a model or its state but a plain value or that of before, cast."""
        if isinstance(target.ctx, ast.Load) or not self.is_part(target.value):
            return False
        value = self._values.get(id(target))
        if value is None:  # x += y, del x
            return True
        if isinstance(target, ast.Subscript):
            return not _only_casts(value)
        return not (self._is_plain(target, value) or (_only_casts(value) and _is_of(value, target)))

    def _is_plain(self, target: ast.Attribute, value: ast.expr) -> bool:
        """Return whether setting an attribute to this value changes nothing that the model computes."""
        if target.attr in ("requires_grad", "training") and _is_true(value):
            return True
        if isinstance(value, ast.Constant) and value.value is None:
            return target.attr == "grad"
        of_model = isinstance(target.value, ast.Name) and target.value.id in self._models
        return of_model and isinstance(value, ast.Constant | ast.JoinedStr)


def method_of(node: ast.AST) -> str:
    """Return the name of the method that a node calls; empty where it calls none."""
    return node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""


def _trains(call: ast.Call, scope: ModelChanges, statements: Statements) -> bool:
    """Return whether a function of the notebook, or what it uses, changes a model that this call gives it."""
    seen, waiting = set[tuple[int, frozenset[str]]](), _called_with(call, scope, statements)
    while waiting:
        top, models = waiting.pop()
        if (id(top), models) in seen:
            continue
        seen.add((id(top), models))
        nodes = list(ast.walk(top))
        inside = ModelChanges(nodes, models | MODEL_ARGUMENTS, statements)
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        own = [node for node in calls if dotted(node.func).partition(".")[0] in statements.definitions]
        if any(True for _ in inside.found(but=own)):
            return True
        waiting += (found for node in own for found in _called_with(node, inside, statements))
        read = statements.later.get(getattr(top, "name", ""), frozenset())
        waiting += ((other, frozenset()) for name in read for other in statements.definitions.get(name, ()))
    return False


def _called_with(call: ast.Call, scope: ModelChanges, statements: Statements) -> list[tuple[ast.stmt, frozenset[str]]]:
    """Return what the call runs of the notebook's own, with the parameters that stand for models there."""
    root = dotted(call.func).partition(".")[0]
    return [(top, frozenset(_given(call, top, scope))) for top in statements.definitions.get(root, ())]


def _given(call: ast.Call, top: ast.stmt, scope: ModelChanges) -> Iterator[str]:
    for function, bound in _functions(top, method_of(call) or "__init__"):
        arguments = function.args
        names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)][bound:]
        further = arguments.vararg.arg if arguments.vararg else ""
        for place, value in enumerate(call.args):
            if scope.is_part(value):
                yield names[place] if place < len(names) else further
        yield from (keyword.arg for keyword in call.keywords if keyword.arg and scope.is_part(keyword.value))


def _functions(top: ast.stmt, method: str) -> Sequence[tuple[Function, int]]:
    if isinstance(top, Function):
        return [(top, 0)]
    body = top.body if isinstance(top, ast.ClassDef) else []
    return [(item, 1) for item in body if isinstance(item, Function) and item.name == method]


def _only_casts(value: ast.expr) -> bool:
    if isinstance(value, ast.IfExp):
        return _only_casts(value.body) and _only_casts(value.orelse)
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Attribute) and value.func.attr in CASTS and _only_casts(value.func.value)
    return isinstance(value, ast.Name | ast.Subscript | ast.Attribute)


def _is_of(value: ast.expr, target: ast.Attribute) -> bool:
    """Return whether a cast is one of what the target held before."""
    return dotted(target) in {dotted(node) for node in ast.walk(value) if isinstance(node, ast.Attribute)}


def _names(target: ast.expr) -> list[str]:
    return [part.id for part in ast.walk(target) if isinstance(part, ast.Name)]


def _is_true(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is True


def _called(node: ast.expr) -> str:
    return dotted(node.func) if isinstance(node, ast.Call) else ""
