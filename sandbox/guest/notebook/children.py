"""Lets the Python processes that a notebook starts run as itself does: seeds mixed, "cuda" as the CPU, older torch.

They read `child_path/sitecustomize.py`, unless they are started with -E, -I or -S. The libraries are changed when they
are imported, and only then.
"""

import importlib
import importlib.abc
import importlib.machinery
import os
import random
import shutil
import sys
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from lethe.runtime.randomness import VARIABLE, Randomness

STARTED = Path("/scratch/.lethe/children")  # a file for each command, with a byte for each time that it was started
CHILD_PATH = Path(__file__).parent / "child_path"


def prepare() -> None:
    """Set up the environment of child processes; earlier children are forgotten."""
    shutil.rmtree(STARTED, ignore_errors=True)
    STARTED.mkdir(parents=True)
    known = os.environ.get("PYTHONPATH", "").split(":")
    os.environ["PYTHONPATH"] = ":".join(dict.fromkeys([str(CHILD_PATH), *known]))


def begin() -> None:
    """Change this process, if a notebook has started it."""
    said = os.environ.get(VARIABLE)
    if said is None:
        return
    chance = Randomness.of_child(said, started_as=(sys.orig_argv, _times_started()))

    def of_numpy() -> None:
        chance.install_numpy()
        importlib.import_module("numpy.random").seed()

    def of_torch() -> None:
        chance.install_torch()
        importlib.import_module("torch").seed()
        importlib.import_module("lethe.runtime.earlier_torch").install()
        cuda = importlib.import_module("sandbox.guest.kaggle_cuda")
        if cuda.VARIABLE in os.environ:
            cuda.install()

    chance.install_random()
    random.seed()
    sys.meta_path.insert(0, AfterImport({"numpy.random": of_numpy, "torch": of_torch}))


def _times_started() -> int:
    """Return how often this command was started in this run before."""
    name = sha256(repr(sys.orig_argv).encode()).hexdigest()
    try:
        with (STARTED / name).open("ab") as file:
            file.write(b".")
            return file.tell() - 1
    except OSError:  # no space, or the folder was removed: a process like the one before draws the same
        return 0


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls something after a module was imported. actions: by the module's name."""

    def __init__(self, actions: Mapping[str, Callable[[], None]]) -> None:
        self._actions = actions

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Return the module's ordinary specification, whose loader calls the action when it is done."""
        action = self._actions.get(name)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if action else None
        if action is None or spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            action()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
