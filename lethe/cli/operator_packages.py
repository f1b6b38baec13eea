"""The server, the worker and benchmarks, where this package lies in a checkout or an image of Lethe."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import lethe
from lethe.errors import AppError, InvalidInput

PACKAGES = ("server", "worker")


def operator_packages() -> list[str]:
    """Return the packages beside this one that have operator commands, with their folder first in the search path."""
    root = Path(lethe.__file__).resolve().parents[1]
    found = [package for package in PACKAGES if (root / package / "cli" / "commands.py").is_file()]
    if found and str(root) not in sys.path[:1]:
        sys.path.insert(0, str(root))
    return found


def as_expected(error: Exception) -> AppError | None:
    """Return in words what the database of an operator's command raised, None for what nobody expects."""
    if "server" not in operator_packages():
        return None
    expected: AppError | None = import_module("server.cli.commands").as_expected(error)
    return expected


def import_from_checkout(name: str, *, purpose: str) -> ModuleType:
    """Return a module that lies beside this package, never one of the current folder.

    Raises InvalidInput, saying what it is for, where this package was installed without it.
    """
    operator_packages()
    root = Path(lethe.__file__).resolve().parents[1]
    if not (root / f"{name.replace('.', '/')}.py").is_file():
        raise InvalidInput(f"{purpose} needs a checkout of Lethe: {name} is not part of the installed package")
    return import_module(name)
