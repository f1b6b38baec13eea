"""What a statement may change beyond what it certainly changes: for statements that would else be left out.

A statement that only follows from the competition's data is left out where nothing that is kept can notice it. In
doubt it counts as a change here, and the statement is kept.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from lethe.submission.name_groups import NameGroups
from lethe.submission.notebook_statements import Import, Statement, Statements, imported_names
from lethe.submission.own_loop import QUIET_LIBRARIES, dotted
from lethe.submission.plain_values import IMMUTABLE_CALLS, binders, immutable_names, plain_attributes
from lethe.submission.statement_changes import BUILTINS, changed_roots, executed_nodes, is_backend_switch
from lethe.submission.statement_reads import Definition, Function, own_nodes

STORING = frozenset(
    """
    __setitem__ add append appendleft extend insert push put register_buffer register_module setdefault update
    """.split()  # noqa: SIM905
)
PROPAGATING = frozenset({"backward", "step"})  # changes tensors that only its object knows
COPIES = re.compile(r"^(copy\.(deep)?copy|deepcopy)$|(^|\.)DataLoader$")
# Methods whose result is no part of their object.
FRESH = frozenset(
    """
    all any argmax argmin clone copy count dim endswith format index item join lower max mean min nunique numel round
    size split startswith std strip sum tolist unique upper value_counts
    """.split()  # noqa: SIM905
)
# Built-in functions whose result may be a part of an argument.
HANDS_ON = frozenset("dict enumerate filter getattr iter list max min next reversed sorted tuple zip".split())  # noqa: SIM905
SETTINGS = re.compile(
    r"^(torch\.(set_|use_|autograd\.set_)\w+|os\.(environ\.\w+|putenv|chdir)|sys\.(path|modules|argv)\.\w+"
    r"|(np|numpy)\.(seterr|set_printoptions)|setattr|delattr)$"
)
READING_SETTINGS = frozenset({"os.environ.get", "os.environ.items", "os.environ.keys", "sys.path.index"})
STATELESS = re.compile(r"(Loss|Softmax|ReLU|Identity|Flatten)$|(^|\.)Compose$|transforms")
# Libraries whose functions are called without a look at their value only for what they do to their arguments.
CHANGING_LIBRARIES = frozenset({"numpy", "random", "scipy", "sklearn", "torch", "torchvision"})
MOST_CALLS = 3  # of functions that return what another one returns
NESTED = ast.Lambda | Definition


class PossibleChanges:
    """What the statements of a notebook may change, and which names carry code that runs later."""

    def __init__(self, statements: Statements, loop: Collection[int]) -> None:
        """loop: the places of the competition's own loop, and of what follows from it."""
        self._statements = statements
        before = [statement for number, statement in enumerate(statements.all) if number not in loop]
        self.later = _with_carriers(statements, before)
        self._quiet = frozenset(imported_names(statements, QUIET_LIBRARIES))
        self._foreign = statements.modules - self._quiet
        self._changing = frozenset(imported_names(statements, CHANGING_LIBRARIES))
        self._plain_attributes = plain_attributes(statements)
        self._methods = {
            item.name
            for found in statements.definitions.values()
            for node in found
            for item in ast.walk(node)
            if isinstance(node, ast.ClassDef) and isinstance(item, ast.FunctionDef)
        }
        self._known_functions = frozenset({*BUILTINS, *statements.definitions, *self._quiet, *self._library_objects()})
        bound = frozenset().union(*(found.binds for found in statements.all))
        plain = (name for name, found in statements.definitions.items() if not any(map(_has_attributes, found)))
        self._unchanging = frozenset({*plain, *self._quiet, *(BUILTINS - bound), *immutable_names(statements)})
        self.groups = NameGroups(
            [name for name in group if name not in self._unchanging]
            for found in before
            for group in self._stored(found.node)
        )
        self.changed_inside = {
            name: frozenset(self._changed(node for top in found for node in ast.walk(top)))
            for name, found in self._deferred().items()
        }

    def names(self, statement: Statement) -> frozenset[str]:
        """Return the names whose values running the statement may change."""
        return frozenset(self._changed(executed_nodes(statement.node))) | statement.changes

    def sets_more_than_names(self, statement: Statement) -> bool:
        """Return whether it may change what no name stands for: a library's settings, values of its own modules."""
        nodes = list(executed_nodes(statement.node))
        stores = (node for node in nodes if isinstance(node, ast.Attribute | ast.Subscript))
        if any(
            not isinstance(node.ctx, ast.Load)
            and not is_backend_switch(node)
            and dotted(node).partition(".")[0] in self._statements.modules
            for node in stores
        ):
            return True
        if any(SETTINGS.match(name) and name not in READING_SETTINGS for name in statement.calls.names):
            return True
        effects = (node.value for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
        return any(dotted(call.func).partition(".")[0] in self._foreign for call in effects)

    def of_function(self, function: str) -> list[ast.AST]:
        """Return what lies in the function, and in what it uses."""
        found: list[ast.AST] = []
        deferred = self._deferred()
        seen, waiting = {function}, [function]
        while waiting:
            name = waiting.pop()
            found += (node for top in deferred.get(name, ()) for node in ast.walk(top))
            new = self.later.get(name, frozenset()) - seen
            seen |= new
            waiting += new
        return found

    def _deferred(self) -> dict[str, list[ast.stmt]]:
        """Return, by name, definitions and the statements that bind lambdas or hold definitions."""
        found = defaultdict(list, {name: list(nodes) for name, nodes in self._statements.definitions.items()})
        for statement in self._statements.all:
            if not isinstance(statement.node, Definition) and _holds_code(statement.node):
                for name in statement.binds:
                    found[name].append(statement.node)
        return found

    def _changed(self, nodes: Iterable[ast.AST]) -> Iterator[str]:
        found = list(nodes)
        # A function that is handed over may be called there.
        found += [
            inner
            for node in found
            if isinstance(node, ast.Call)
            for argument in ast.iter_child_nodes(node)
            if isinstance(part := getattr(argument, "value", argument), ast.Lambda)
            for inner in ast.walk(part.body)
        ]
        yield from changed_roots(found, {}, self._quiet)
        for node in found:
            effect = node.value if isinstance(node, ast.Expr) else None
            if isinstance(effect, ast.Call) and dotted(effect.func).partition(".")[0] in self._changing:
                yield from self._loaded(ast.walk(effect))
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Call)
                and isinstance(node.value.func, ast.Attribute)
            ):
                yield from self._roots(node.value.func)
            elif isinstance(node, ast.Call):
                yield from self._by_call(node)
        if any(
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PROPAGATING
            for node in found
        ):
            yield from self._loaded(found)

    def _by_call(self, node: ast.Call) -> Iterator[str]:
        if any(keyword.arg == "inplace" for keyword in node.keywords) or self._is_unknown(node.func):
            yield from self._roots(node.func)
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        if self._is_unknown(node.func):
            yield from self._loaded(part for argument in arguments for part in ast.walk(argument))
        for argument in arguments:
            if isinstance(argument, ast.Attribute) and argument.attr in STORING:  # handed over to be called
                yield from self._roots(argument)

    def _is_unknown(self, function: ast.expr) -> bool:
        """Return whether it is not known what a call of it changes of its arguments."""
        name = dotted(function)
        root = name.partition(".")[0]
        if isinstance(function, ast.Name):
            return root not in self._known_functions
        if isinstance(function, ast.Attribute):
            return root in self._foreign or function.attr in self._methods or function.attr == "at"
        return True

    def _library_objects(self) -> Iterator[str]:
        """Yield names that are only bound to what a library makes, and that calling does not change, such as a loss."""
        for name, bound in binders(self._statements.all).items():
            values = (getattr(found.node, "value", None) for found in bound)
            makers = [dotted(value.func) for value in values if isinstance(value, ast.Call)]
            known = [maker for maker in makers if maker.partition(".")[0] in self._quiet and STATELESS.search(maker)]
            if len(known) == len(bound):
                yield name

    def _roots(self, node: ast.expr, looked_into: frozenset[str] = frozenset()) -> Iterator[str]:
        """Yield what an expression may be a part of: also the globals that a called function may return."""
        while not isinstance(node, ast.Name):
            if isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
                node = node.value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr not in FRESH:
                node = node.func.value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                name = node.func.id
                if name not in looked_into and len(looked_into) < MOST_CALLS:
                    yield from self._returned(name, looked_into | {name})
                if name in self._statements.definitions:
                    yield name
                elif name in HANDS_ON:
                    yield from (held for argument in node.args for held in self._held(argument, looked_into))
                return
            else:
                return
        if node.id not in self._quiet:
            yield node.id

    def _returned(self, name: str, looked_into: frozenset[str]) -> Iterator[str]:
        """Yield the names that what a function returns may be a part of; those of its own as well."""
        for top in self._statements.definitions.get(name, ()):
            if isinstance(top, Function):
                values = {
                    target.id: node.value
                    for node in own_nodes(top)
                    if isinstance(node, ast.Assign)
                    for target in node.targets
                    if isinstance(target, ast.Name)
                }
                for node in own_nodes(top):
                    if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom) and node.value is not None:
                        for held in self._held(node.value, looked_into):
                            yield held
                            if held in values:
                                yield from self._held(values[held], looked_into)

    def _loaded(self, nodes: Iterable[ast.AST]) -> Iterator[str]:
        for node in nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in self._quiet:
                yield node.id

    def _stored(self, node: ast.stmt) -> Iterator[list[str]]:
        """Yield groups of names of which one may hold the other after the statement."""
        for found in ast.walk(node) if not isinstance(node, Definition) else executed_nodes(node):
            if isinstance(found, ast.Assign):
                yield [*self._loaded_and_stored(found.targets), *self._held(found.value)]
            elif isinstance(found, ast.AnnAssign | ast.NamedExpr | ast.AugAssign) and found.value is not None:
                yield [*self._loaded_and_stored([found.target]), *self._held(found.value)]
            elif isinstance(found, ast.For | ast.comprehension):
                yield [*self._loaded_and_stored([found.target]), *self._held(found.iter)]
            elif isinstance(found, ast.withitem) and found.optional_vars is not None:
                yield [*self._loaded_and_stored([found.optional_vars]), *self._held(found.context_expr)]
            elif isinstance(found, ast.Call) and getattr(found.func, "attr", "") in STORING:
                parts = (part for argument in found.args for part in self._held(argument))
                keywords = (part for keyword in found.keywords for part in self._held(keyword.value))
                yield [*self._roots(found.func), *parts, *keywords]

    @staticmethod
    def _loaded_and_stored(targets: Iterable[ast.expr]) -> Iterator[str]:
        for target in targets:
            yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))

    def _held(self, value: ast.expr, looked_into: frozenset[str] = frozenset()) -> Iterator[str]:
        """Yield the names whose values the value may hold, or be a part of."""
        if isinstance(value, ast.Call):
            name = dotted(value.func)
            fresh = isinstance(value.func, ast.Attribute) and value.func.attr in FRESH
            if fresh or COPIES.search(name) or IMMUTABLE_CALLS.match(name):
                return
            hands_on = (
                isinstance(value.func, ast.Name) and name in HANDS_ON and name not in self._statements.definitions
            )
            if not hands_on:  # else its roots are what the arguments hold
                yield from self._roots(value, looked_into)
                library_function = name.partition(".")[0] in self._quiet and not name.rpartition(".")[2][:1].isupper()
                if library_function and name.rpartition(".")[2] not in ("partial", "chain"):
                    return
            for argument in [*value.args, *(keyword.value for keyword in value.keywords)]:
                yield from self._held(argument, looked_into)
        elif isinstance(value, ast.Attribute) and value.attr in self._plain_attributes:
            return
        elif isinstance(value, ast.Attribute | ast.Subscript):
            yield from self._roots(value, looked_into)
        elif isinstance(value, ast.Name):
            yield value.id
        elif not isinstance(value, ast.Compare | ast.JoinedStr | ast.Lambda):
            for child in ast.iter_child_nodes(value):
                if isinstance(child, ast.expr):
                    yield from self._held(child, looked_into)


def _has_attributes(node: ast.stmt) -> bool:
    """Return whether it is a class with values of its own, which its objects share."""
    return isinstance(node, ast.ClassDef) and any(isinstance(item, ast.Assign | ast.AnnAssign) for item in node.body)


def _holds_code(node: ast.AST) -> bool:
    return any(isinstance(found, NESTED) for found in ast.walk(node))


def _with_carriers(statements: Statements, before: Sequence[Statement]) -> dict[str, frozenset[str]]:
    """Return what is read later, also through names that carry code: `partial(f)`, an object of a class, a lambda."""
    later = defaultdict(set, {name: set(reads) for name, reads in statements.later.items()})
    readers = defaultdict(list)
    waiting = list(statements.definitions)
    for statement in before:
        if isinstance(statement.node, Import):
            continue
        for name in statement.reads | (statement.binds if isinstance(statement.node, Definition) else frozenset()):
            readers[name].append(statement)
        if isinstance(statement.node, Definition):
            continue
        if _holds_code(statement.node):
            for name in statement.binds:
                later[name] |= statement.reads
                waiting.append(name)
    seen = set(waiting)
    while waiting:
        name = waiting.pop()
        for statement in readers[name]:
            inside = (statements.changed_inside.get(read, frozenset()) for read in statement.reads)
            for bound in frozenset().union(statement.binds, statement.changes, *inside) - {name}:
                later[bound].add(name)
                if bound not in seen:
                    seen.add(bound)
                    waiting.append(bound)
    return {name: frozenset(reads) for name, reads in later.items()}
