"""The programs that a notebook starts: `zip`, and Python as the notebook's own: seeds mixed, "cuda" as the CPU.

Python processes read `child_path/sitecustomize.py`, unless they are started with -E, -I or -S. The libraries are
changed when they are imported, and only then. `zip [-r -q -j -m ...] archive files... [-x patterns]` stores files
whole, without compressing them: what counts afterwards is the list of members.
"""

import importlib
import importlib.abc
import importlib.machinery
import os
import random
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from lethe.runtime.randomness import VARIABLE, Randomness

PROGRAMS = Path("/scratch/.lethe/bin")
PATH = f"{PROGRAMS}:/bin:/usr/bin:/opt/python/bin"
STARTED = Path("/scratch/.lethe/children")  # a file for each command, with a byte for each time that it was started
CHILD_PATH = Path(__file__).parent / "child_path"
ZIP_TAKES_A_VALUE = frozenset("bnOstZ")
ZIP_NOTHING_TO_DO = 12  # zip's own status


def install_programs() -> None:
    """Write the programs, and let the shell find them; earlier children are forgotten."""
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    zip_program = PROGRAMS / "zip"
    zip_program.write_text(
        f"#!{sys.executable} -S\nimport sys\nfrom {__name__} import zip_files\nsys.exit(zip_files(sys.argv[1:]))\n",
        encoding="utf-8",
    )
    zip_program.chmod(0o755)
    for name in ("python", "python3"):
        (PROGRAMS / name).unlink(missing_ok=True)
        (PROGRAMS / name).symlink_to(sys.executable)
    os.environ["PATH"] = PATH
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


def zip_files(words: Sequence[str]) -> int:
    """Add the named files to an archive, as the command `zip` does. Return its exit status."""
    options: set[str] = set()
    names: list[str] = []
    excluded: list[str] = []
    into, rest = names, iter(words)
    for word in rest:
        if not word.startswith("-"):
            into.append(word)
            continue
        into = excluded if word in ("-x", "--exclude") else names
        options |= set(word[2:3] if word.startswith("--") else word[1:])
        if not word.startswith("--") and word[-1] in ZIP_TAKES_A_VALUE:
            next(rest, None)
    archive, *named = names or [""]
    files = dict(_members(named, excluded, options))
    if not files:
        sys.stderr.write("zip error: Nothing to do! (zip [options] archive files...)\n")
        return ZIP_NOTHING_TO_DO
    place = Path(archive if Path(archive).suffix else f"{archive}.zip")
    with zipfile.ZipFile(place, "a" if zipfile.is_zipfile(place) else "w") as target:
        there = target.namelist()
        for member, path in files.items():
            if member not in there and path.resolve() != place.resolve():
                target.write(path, member)
    if "q" not in options:
        sys.stdout.writelines(f"  adding: {member} (stored 0%)\n" for member in files)
    if "m" in options:
        for path in files.values():
            path.unlink(missing_ok=True)
    return 0


def _members(names: Sequence[str], excluded: Sequence[str], options: set[str]) -> Iterator[tuple[str, Path]]:
    for name in names:
        path = Path(name)
        if not path.exists():
            sys.stderr.write(f"zip warning: name not matched: {name}\n")
        for item in sorted(path.rglob("*")) if path.is_dir() and "r" in options else [path]:
            member = item.name if "j" in options else str(item).lstrip("/").removeprefix("./")
            if item.is_file() and not any(fnmatch(member, one) or fnmatch(item.name, one) for one in excluded):
                yield member, item
