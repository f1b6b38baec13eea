"""Runs a program's files in one namespace: a notebook's cells, or one file whose function is called afterwards.

A program that only defines its function is run statement by statement. Of such a program a statement is skipped that
fails because something is not here: the network, a file, a module, a GPU. Once the function is defined, any statement
that fails is skipped, since it tries the function out. What the statement would have set or changed is taken out of the
namespace, with the files that it began to write, and whoever reads it gets an error that names the statement and its
cause.
"""

import __future__

import ast
import asyncio
import inspect
import os
import subprocess
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

CELL_FILES = "cell-*.py"
_GPU_WORDS = ("cuda", "gpu", "accelerator", "nvidia")
_NOT_HERE = (OSError, ImportError, EOFError, subprocess.CalledProcessError)  # EOFError: a download that left nothing
_NO_DATA = "Dataset not found"  # torchvision's, of a data set that could not be downloaded
_SHARED = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type, torch.device, torch.dtype)
_CONSTANTS = (bool, int, float, complex, str, bytes, type(None))
Change = Callable[[ast.Module], ast.Module]


class SkippedName(NameError):
    """Something was read that a skipped statement would have set. `skipped` is that statement."""

    def __init__(self, name: str, skipped: "Skipped") -> None:
        super().__init__(f"{name!r} was not set: {skipped.in_words}", name=name)
        self.skipped = skipped


@dataclass(frozen=True)
class Skipped:
    """A statement that failed: its file, its line there, the exception's type and text."""

    file: str
    line: int
    cause: str

    @property
    def in_words(self) -> str:
        return f"{self.file}, line {self.line} failed with {self.cause}"

    def as_detail(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


@dataclass
class Cells:
    """A namespace and what was run in it. skips: run statement by statement, and skip what cannot run here.

    function_name: what is called afterwards. Once it is defined, any statement that fails is skipped.
    """

    namespace: dict[str, Any]
    skips: bool = False
    function_name: str = ""
    change: Change | None = None  # of each file's tree, before it is run
    tell: Callable[[str], None] = print
    missing: dict[str, Skipped] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)

    def run(self, paths: Iterable[Path]) -> None:
        """Run the files in this order. exit() ends them, as it ends a notebook."""
        try:
            for path in paths:
                self._run_file(path)
        except SystemExit as left:
            if left.code not in (None, 0):
                raise
        except NameError as error:
            raise self.explained(error) from error

    def explained(self, error: NameError) -> NameError:
        """Return the error that names the skipped statement, if the name is one that it would have set."""
        name = error.name or ""
        skipped = self.missing.get(name)
        return SkippedName(name, skipped).with_traceback(error.__traceback__) if skipped else error

    def function(self, name: str, without: Exception) -> Callable[..., Any]:
        """Return what can be called under this name. Raises `without`, or why it was not set."""
        found: Callable[..., Any] | None = self.namespace.get(name)
        if found is None or not callable(found):
            raise SkippedName(name, self.missing[name]) if name in self.missing else without
        return found

    def _run_file(self, path: Path) -> None:
        source = path.read_bytes()
        if not self.skips:
            execute(compiled(source, str(path), change=self.change), self.namespace)
            return
        flags = 0
        for node in ast.parse(source, str(path)).body:
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                flags |= sum(getattr(__future__, alias.name).compiler_flag for alias in node.names)
            code = compile(ast.Module([node], []), str(path), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | flags, True)
            before = _files()
            try:
                execute(code, self.namespace)
                self.missing = {name: why for name, why in self.missing.items() if name not in self.namespace}
            except Exception as error:
                self._skip(node, path, error)
                for name in _files().items() - before.items():
                    os.unlink(name[0])  # noqa: PTH108 - a text is enough

    def _skip(self, node: ast.stmt, path: Path, error: Exception) -> None:
        """Remove from the namespace what the statement would have set. Raises the error if it is the program's own."""
        if isinstance(error, NameError):
            error = self.explained(error)
        is_over = callable(self.namespace.get(self.function_name)) and not isinstance(error, MemoryError)
        if not is_over and not _is_about_what_is_not_here(error):
            raise error
        cause = error.skipped.cause if isinstance(error, SkippedName) else f"{type(error).__name__}: {error}"[:300]
        skipped = Skipped(path.name, node.lineno, cause)
        self.skipped.append(skipped)
        for name in _names_touched(node, self.namespace):
            self.namespace.pop(name, None)
            self.missing[name] = skipped
        self.tell(f"[lethe] skipped: {skipped.in_words}")


def compiled(source: str | bytes, filename: str, *, change: Change | None = None) -> types.CodeType:
    """Return a file's code; as in a notebook, it may hold `await`."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    what: Any = source if change is None else ast.fix_missing_locations(change(ast.parse(source, filename)))
    code: types.CodeType = compile(what, filename, "exec", flags, dont_inherit=True)
    return code


def execute(code: types.CodeType, namespace: dict[str, Any]) -> None:
    """Run it in the namespace."""
    running = eval(code, namespace)  # noqa: S307 - a participant's own code, in its own sandbox
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(running)


def _files() -> dict[str, tuple[int, int]]:
    """Return the files below the current folder, each with when it was written and its size."""
    names = [os.path.join(folder, name) for folder, _folders, names in os.walk(".") for name in names]  # noqa: PTH118
    stats = ((name, os.stat(name)) for name in names if os.path.isfile(name))  # noqa: PTH113, PTH116
    return {name: (found.st_mtime_ns, found.st_size) for name, found in stats}


def insists_on_gpu(error: BaseException) -> bool:
    """Return whether code gave up, or torch did, because there is no GPU."""
    if torch.cuda.is_available() or not isinstance(error, RuntimeError | AssertionError):
        return False
    text = str(error)[:1000].lower()
    return any(word in text for word in _GPU_WORDS)


def _is_about_what_is_not_here(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, (*_NOT_HERE, SkippedName)) or insists_on_gpu(error) or _NO_DATA in str(error)[:200]:
            return True
        error = error.__cause__ or error.__context__
    return False


def _names_touched(node: ast.stmt, namespace: dict[str, Any]) -> set[str]:
    """Return what a statement sets, and the objects that it hands over, which it may have changed or would have."""
    touched = set[str]()
    for found in _executed(node):
        if isinstance(found, ast.Name) and not isinstance(found.ctx, ast.Load):
            touched.add(found.id)
        elif isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            touched.add(found.name)
        elif isinstance(found, ast.alias):
            touched.add((found.asname or found.name).partition(".")[0])
        elif isinstance(found, ast.Attribute | ast.Subscript) and not isinstance(found.ctx, ast.Load):
            touched |= _changeable(found, namespace)
        elif isinstance(found, ast.Call):
            receiver = [found.func.value] if isinstance(found.func, ast.Attribute) else []
            for part in (*receiver, *found.args, *(keyword.value for keyword in found.keywords)):
                touched |= _changeable(part, namespace)
    return touched


def _changeable(expression: ast.expr, namespace: dict[str, Any]) -> set[str]:
    """Return the name that an expression begins with, if its value can change."""
    while isinstance(expression, ast.Attribute | ast.Subscript | ast.Starred):
        expression = expression.value
    name = expression.id if isinstance(expression, ast.Name) else ""
    value = namespace.get(name)
    return set() if not name or isinstance(value, (*_SHARED, *_CONSTANTS)) else {name}


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that are run where the statement is, without the bodies of what it defines."""
    yield node
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from _executed(child)
