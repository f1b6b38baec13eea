"""A copy of this checkout, for tests that write into one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.forked_children import run_module

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(sys.executable).parent
# What the copy may change, and what it only reads.
COPIED = ("lethe", "scripts", "docs", "examples", "pyproject.toml", "tests/__init__.py", "tests/lethe")
READ = ("benchmarks", "migrations", "sandbox", "server", "worker")


def copy_checkout(folder: Path, *, types: bool) -> Path:
    """Fill a folder with a checkout. types: mypy's cache comes along where there is one."""
    for name in (*COPIED, *((".mypy_cache",) if types and (ROOT / ".mypy_cache").is_dir() else ())):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, folder / name)  # with its time, which mypy compares
    tests = (f"tests/{path.name}" for path in (ROOT / "tests").iterdir())
    for name in (*READ, *tests):
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)
    return folder


def run(*command: str, folder: Path) -> str:
    """Run a program of this environment in a folder, whose modules come first. Return what it said; it must succeed.

    `lethe` and `python -m MODULE` are forked from a process that has imported their libraries.
    """
    paths = os.pathsep.join((str(PROGRAMS), os.environ["PATH"]))
    environment = os.environ | {"PYTHONPATH": str(folder), "PATH": paths}
    environment["PYTEST_ADDOPTS"] = "--assert=plain"  # pytest warns of a plug-in that is imported and not rewritten
    words = {"lethe": ("-m", "lethe.cli.main", *command[1:]), "python": command[1:]}.get(command[0], command)
    if words[0] == "-m":
        ran = run_module(*words[1:], env=environment, cwd=folder)
    else:
        ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
    return ran.stdout
