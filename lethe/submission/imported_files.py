"""Which files of a package another one imports, from its syntax alone."""

import ast
from collections.abc import Collection, Iterator
from pathlib import PurePosixPath


def imported_files(tree: ast.Module, name: str, names: Collection[str]) -> Iterator[str]:
    """Yield those of `names` that the file `name` imports by a plain statement. tree: that file, parsed."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _found(PurePosixPath(), alias.name.split("."), names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module.split(".") if node.module else []
            folder = _folder(name, node.level)
            for alias in node.names:
                yield from _found(folder, [*module, alias.name], names)


def _folder(name: str, level: int) -> PurePosixPath:
    """Return the folder that an import begins at: the package's top, or `level` dots up."""
    parents = PurePosixPath(name).parents
    return parents[min(level, len(parents)) - 1] if level else PurePosixPath()


def _found(folder: PurePosixPath, parts: list[str], names: Collection[str]) -> Iterator[str]:
    for part in parts:
        folder = folder / part
        for candidate in (f"{folder}.py", f"{folder}/__init__.py"):
            if candidate in names:
                yield candidate
