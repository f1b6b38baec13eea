"""A copy of the checkout in another place, with an environment of its own."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.test_fresh_checkout.situations import interpreter

ROOT = Path(__file__).parents[2]
# Retraining that is this short leaves a run no time but that of its start.
SMALL_DEMO = {
    "n_models": "8",
    "shard_runs": "8",
    "epochs": "2",
    "min_train_accuracy": "0.1",
    "run_start_time_s": "5.0",
    "metrics": "[]",
    "columns": "[]",
    "baselines": "[]",
}


def copy_checkout(target: Path) -> None:
    """Copy what git tracks and what it does not ignore, as it is now."""
    names = ("git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in subprocess.run(names, capture_output=True, check=True).stdout.split(b"\0"):
        source = ROOT / os.fsdecode(name)
        if name and source.exists():
            copy = target / os.fsdecode(name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy, follow_symlinks=False)


def make_environment(checkout: Path, *, python: str | None) -> None:
    """Make the copy's environment: of links to this one's, or by `make install` for another version."""
    program = python and interpreter(python)
    if program in (None, sys.executable):
        link_environment(checkout / ".venv")
    else:
        subprocess.run(["make", "install", f"PYTHON={program}"], cwd=checkout, check=True)


def link_environment(target: Path) -> None:
    """Make a virtual environment of this one's packages, by links where the file system has them."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", target], check=True)
    source, packages = Path(sys.prefix), Path("lib", f"python{sys.version_info.major}.{sys.version_info.minor}")
    shutil.rmtree(target / packages)
    shutil.copytree(source / packages, target / packages, symlinks=True, copy_function=_link)
    own = target / packages / "site-packages"
    for path in (*own.glob("__editable__*"), *own.glob("lethe_unlearning-*.dist-info")):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for program in (source / "bin").iterdir():
        if program.is_file() and not (target / "bin" / program.name).exists():
            _copy_program(program, target / "bin" / program.name, python=target / "bin" / "python")
    words = ("-m", "pip", "install", "-qq", "--no-index", "--no-deps", "--no-build-isolation", "--editable")
    environment = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    subprocess.run([target / "bin" / "python", *words, target.parent], check=True, env=environment)
    for stamp in (".installed-to-run", ".installed"):
        (target / stamp).touch()


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another file system, or another's file
        shutil.copy2(source, target, follow_symlinks=False)


def _copy_program(source: Path, target: Path, *, python: Path) -> None:
    """Copy a program; a script's first line names its Python, and cannot hold a space."""
    content = source.read_bytes()
    if content.startswith((b"#!", b"#!/bin/sh\n'''exec'")) and b"python" in content[:300]:
        rest = content.split(b"\n' '''\n", 1)[-1] if b"\n' '''\n" in content[:500] else content.split(b"\n", 1)[1]
        first = f"#!/bin/sh\n'''exec' {shlex.quote(str(python))} \"$0\" \"$@\"\n' '''\n"
        target.write_bytes(first.encode() + rest)
        target.chmod(0o755)
    else:
        _link(str(source), str(target))


def make_demo_small(checkout: Path) -> None:
    """Let the copy's demo take seconds: few models that hardly learn, no report, no reference lines."""
    file = checkout / "examples" / "demo" / "digits.toml"
    text = file.read_text()
    for key, value in SMALL_DEMO.items():
        text, found = re.subn(rf"^{key} = .*$", f"{key} = {value}", text, flags=re.MULTILINE)
        if found != 1:
            raise ValueError(f"{file} has no line of its own for {key}")
    file.write_text(text)
