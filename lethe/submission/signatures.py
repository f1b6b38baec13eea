"""What can be called in a parsed file, and how: a function, or a class with a method `run`."""

import ast
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from lethe.submission.parsing import dotted, names_bound

POSITIONAL = 4
MAX_FOLLOWED = 8  # names, from one that stands for another
METHOD = "run"
KNOWN_EXTRAS = frozenset({"class_counts", "class_weights", "device", "param_names", "seed"})
NEVER_LOADERS = frozenset({"seed", "device", "epochs", "lr"})  # words of names of other things

# What says which of the four an argument is, by the order in which they come.
ROLES = (("net", "network", "model"), ("retain", "remain"), ("forget",), ("val", "valid", "validation"))
PLACES = ("first", "second", "third", "fourth")
PASSED = ("the network", "the retain loader", "the forget loader", "the validation loader")

Function = ast.FunctionDef | ast.AsyncFunctionDef


class NotCallable(Exception):
    """It cannot be called as it would be; the message says why, `line` where.

    file: of the package, if it lies in one that is imported from; empty for the entry file.
    """

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line
        self.file = ""


@dataclass(frozen=True)
class Lookup:
    """Where a name is looked up. follow: how many names may still be followed. starred: files looked into for it."""

    trees: Sequence[ast.Module]
    signature: str
    imported: "Imported"
    follow: int
    starred: set[str]


@dataclass(frozen=True)
class ImportedFile:
    """A file of the package that a statement imports from, with what finds those that it imports from itself."""

    name: str
    trees: Sequence[ast.Module]
    imported: "Imported"


Imported = Callable[[ast.ImportFrom], ImportedFile | None]


def from_elsewhere(_node: ast.ImportFrom) -> None:
    """Stand for a lone file, which holds nothing to import from."""
    return


@dataclass(frozen=True)
class Entry:
    """Something that can be called: its name, and the known extras that it is to be given by name."""

    name: str
    keywords: tuple[str, ...]


def find_callable(
    trees: Sequence[ast.Module],
    name: str,
    *,
    signature: str,
    imported: Imported = from_elsewhere,
    follow: int = MAX_FOLLOWED,
    starred: set[str] | None = None,
) -> Entry | None:
    """Return what `name` is bound to: a function, another name for one, an object; else a class with a fitting `run`.

    trees: files that share one namespace, in the order in which they are run. imported: returns the file that a
    statement imports from, or None if the package does not hold it. `from … import *` counts where nothing else is
    found, and only for the name itself; starred: given by such an import, the files looked into. Raises NotCallable.
    """
    statements = [node for tree in trees for node in top_level(tree.body)]
    values = (node for node in statements if not isinstance(node, ast.Import))  # a module is none
    bound = _last(node for node in values if name in names_bound(node))
    if isinstance(bound, Function):
        return Entry(name, known_extras(bound, signature=signature))
    looked_up = Lookup(trees, signature, imported, follow - 1, set() if starred is None else starred)
    if bound is not None and not isinstance(bound, ast.ClassDef):
        return Entry(name, _extras_of_bound(bound, name, looked_up) if follow > 0 else ())
    classes = [node for node in statements if isinstance(node, ast.ClassDef) and _method(node, METHOD)]
    fitting = {node.name for node in classes if _fits(node, signature)} if starred is None else set()
    if bound is None and len(fitting) != 1 and (entry := _star_import(statements, name, looked_up)):
        return entry
    if bound is None and starred is not None:
        return None
    named = [node for node in classes if node.name == name]
    chosen = named or classes
    names = sorted({node.name for node in chosen})
    if len(names) > 1:
        raise NotCallable(
            f"has {len(names)} classes with a method {METHOD} ({', '.join(names[:5])}) and no function {name!r};"
            f" say which with `{name} = {names[0]}`",
            chosen[0].lineno,
        )
    return Entry(chosen[-1].name, _extras_of_class(chosen[-1], signature=signature)) if chosen else None


def _extras_of_bound(node: ast.stmt, name: str, at: Lookup) -> tuple[str, ...]:
    """Return the known extras of what a statement binds to the name; none where only running it would tell."""
    if isinstance(node, ast.ImportFrom):
        original = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
        found = at.imported(node)
        entry = _find_in(found, original, at) if found else None
        return entry.keywords if entry else ()
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    if isinstance(value, ast.Name):
        return _extras_of_name(value.id, at)
    if isinstance(value, ast.Lambda):
        function = ast.FunctionDef("the lambda", value.args, [], [], lineno=value.lineno)
        return known_extras(function, signature=at.signature)
    if isinstance(value, ast.Call):
        return _extras_of_call(value, at)
    return ()


def _extras_of_call(value: ast.Call, at: Lookup) -> tuple[str, ...]:
    maker = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
    if maker == "partial" and len(value.args) == 1 and isinstance(value.args[0], ast.Name):
        given = {keyword.arg for keyword in value.keywords}
        function = _definition(value.args[0].id, at.trees)
        if isinstance(function, Function) and None not in given:  # ** fills what only running it would tell
            return tuple(
                extra for extra in known_extras(function, signature=at.signature, given=given) if extra not in given
            )
        return ()
    made = _definition(maker, at.trees) if isinstance(value.func, ast.Name) else None
    if not isinstance(made, ast.ClassDef):
        return ()
    call = _method(made, "__call__")
    if call is not None:
        return known_extras(call, signature=at.signature, bound=1)
    if not made.bases:
        raise NotCallable(f"{maker} has no method __call__, so an object of it cannot be called", made.lineno)
    return ()


def _extras_of_name(name: str, at: Lookup) -> tuple[str, ...]:
    definition = _definition(name, at.trees)
    if isinstance(definition, ast.ClassDef):
        return _extras_of_class(definition, signature=at.signature)
    found = find_callable(at.trees, name, signature=at.signature, imported=at.imported, follow=at.follow)
    return found.keywords if found else ()


def _definition(name: str, trees: Sequence[ast.Module]) -> ast.stmt | None:
    statements = (node for tree in trees for node in top_level(tree.body))
    return _last(node for node in statements if isinstance(node, Function | ast.ClassDef) and node.name == name)


def _star_import(statements: Sequence[ast.stmt], name: str, at: Lookup) -> Entry | None:
    """Return what the last `from … import *` of the package's own files brings under this name, if one does."""
    stars = (node for node in statements if isinstance(node, ast.ImportFrom) and node.names[0].name == "*")
    for node in reversed(list(stars)):
        found = at.imported(node) if at.follow > 0 else None
        if found and found.name not in at.starred:
            at.starred.add(found.name)
            if entry := _find_in(found, name, at, starred=at.starred):
                return entry
    return None


def _find_in(file: ImportedFile, name: str, at: Lookup, starred: set[str] | None = None) -> Entry | None:
    try:
        return find_callable(
            file.trees, name, signature=at.signature, imported=file.imported, follow=at.follow, starred=starred
        )
    except NotCallable as error:
        error.file = error.file or file.name
        raise


def top_level(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements that run on import, those in if, try and with included."""
    statements: list[ast.stmt] = []
    for node in body:
        statements.append(node)
        if isinstance(node, ast.If | ast.Try | ast.With):
            for field in ("body", "orelse", "finalbody"):
                statements.extend(top_level(getattr(node, field, [])))
            for handler in getattr(node, "handlers", []):
                statements.extend(top_level(handler.body))
    return statements


def known_extras(
    function: Function, *, signature: str, bound: int = 0, given: Collection[str | None] = ()
) -> tuple[str, ...]:
    """Return the known extras to give by name. Raises NotCallable.

    bound: leading arguments that the call fills by itself: 1 for a method's self. given: names that are filled
    already. An extra whose default is anything
    but None keeps it: its author has chosen. So does one of a function with decorators of its own, which may give it.
    """
    where = f"{function.name}"
    if isinstance(function, ast.AsyncFunctionDef):
        raise NotCallable(f"{where} is async; define it with plain def", function.lineno)
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    wanted = POSITIONAL + bound
    if len(positional) < wanted and arguments.vararg is None:
        raise NotCallable(
            f"{where} takes {len(positional) - bound} positional arguments,"
            f" it is called with {POSITIONAL}: {signature}",
            function.lineno,
        )
    _check_order(function, positional[bound:wanted], signature)
    further = positional[wanted:]
    n_required = max(0, len(positional) - len(arguments.defaults) - wanted)
    required = {argument.arg for argument in further[:n_required]}
    by_position_only = {argument.arg for argument in arguments.posonlyargs}
    pairs = list(zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True))
    required |= {argument.arg for argument, default in pairs if default is None}
    unknown = sorted(required - (KNOWN_EXTRAS - by_position_only) - set(given))
    if unknown:
        raise NotCallable(
            f"{where} needs {', '.join(unknown)}, which are not passed: it is called as {signature} and, by name, with"
            f" those of {', '.join(sorted(KNOWN_EXTRAS))} that it has; others need defaults",
            function.lineno,
        )
    defaults = zip(positional[::-1], arguments.defaults[::-1], strict=False)
    chosen = {argument.arg for argument, default in defaults if not _is_none(default)}
    chosen |= {argument.arg for argument, default in pairs if default is not None and not _is_none(default)}
    named = {argument.arg for argument in (*further, *arguments.kwonlyargs)} - by_position_only - chosen
    if any(dotted(decorator).partition(".")[0] != "torch" for decorator in function.decorator_list):
        named &= required
    return tuple(sorted(KNOWN_EXTRAS & named))


def _check_order(function: Function, four: Sequence[ast.arg], signature: str) -> None:
    """Raise NotCallable if the names of two arguments say that they come in another order; one may be chance.

    An extra among the four is none: what it is to be would be a loader.
    """
    misplaced = []
    for place, argument in enumerate(four):
        words = argument.arg.lower().split("_")
        if argument.arg in KNOWN_EXTRAS or not NEVER_LOADERS.isdisjoint(words):
            raise NotCallable(
                f"{function.name} takes {argument.arg} as its {PLACES[place]} argument, where {PASSED[place]} is"
                f" passed: it is called as {signature}; put {argument.arg} behind the four",
                function.lineno,
            )
        roles = [role for role, names in enumerate(ROLES) if any(word in names for word in words)]
        if len(roles) == 1 and roles[0] != place:
            misplaced.append(f"{argument.arg} as its {PLACES[place]} argument")
    if len(misplaced) > 1:
        raise NotCallable(
            f"{function.name} takes {misplaced[0]}, but it is called as {signature}; put its arguments in this order",
            function.lineno,
        )


def _extras_of_class(node: ast.ClassDef, *, signature: str) -> tuple[str, ...]:
    run = _method(node, METHOD)
    if run is None:
        return ()
    maker = _method(node, "__init__")
    if maker is not None and _n_required(maker) > 1:
        # Made with (net, retain, forget, validation), run without arguments.
        if _n_required(run) > 1:
            raise NotCallable(
                f"{node.name} wants arguments both to be made and in {METHOD}; take the four of {signature} in one",
                node.lineno,
            )
        return known_extras(maker, signature=signature, bound=1)
    return known_extras(run, signature=signature, bound=1)


def _fits(node: ast.ClassDef, signature: str) -> bool:
    try:
        _extras_of_class(node, signature=signature)
    except NotCallable:
        return False
    return True


def _n_required(function: Function) -> int:
    return len(function.args.posonlyargs) + len(function.args.args) - len(function.args.defaults)


def _method(node: ast.ClassDef, name: str) -> Function | None:
    return next((item for item in node.body if isinstance(item, Function) and item.name == name), None)


def _last(nodes: Iterable[ast.stmt]) -> ast.stmt | None:
    found: ast.stmt | None = None
    for found in nodes:  # noqa: B007 - the last one is what a call would meet
        pass
    return found


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
