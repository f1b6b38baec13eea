"""Install what requirements.lock names into this Python's own environment, then the project: for `make install`.

`--to-run` leaves out what only development needs (scripts/development.names), and on a machine without an NVIDIA GPU
triton, which nothing loads there; the other CUDA libraries are linked into torch's wheel, and it does not load without.

uv does it several times sooner than pip, and comes as a wheel by the same way as everything else: its hashes are in
scripts/uv.lock. Where it cannot be had, or fails, pip does it. Every hash is required either way.
"""

import argparse
import ast
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
UV = (sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable)
DRIVER = Path("/proc/driver/nvidia")
EVERY_S = 10.0
TO_RUN, TO_DEVELOP = ("template", "server"), ("notebooks", "scorer")  # parts of scripts/compile_ahead.py
PROJECT = ("--no-deps", "--no-build-isolation", "--editable", str(ROOT))
# What pip was told of where to get packages, as uv is told it.
ASKED = {
    "index-url": "--default-index",
    "extra-index-url": "--index",
    "find-links": "--find-links",
    "trusted-host": "--allow-insecure-host",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Install, saying what and how far. Return the exit status of whoever installed it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to-run", action="store_true", help="leave out what only development needs")
    to_run = parser.parse_args(arguments).to_run
    left_out = names_left_out() if to_run else frozenset()
    lock = without((ROOT / "requirements.lock").read_text(), left_out)
    packages = sum(line[0].isalnum() for line in lock.splitlines() if line)
    size = "about 7.4 GB" if not left_out else "about 6.7 GB" if "triton" not in left_out else "about 5.8 GB"
    print(f"{packages} packages, {size} on disk and a third of that to download, most of it torch and what it links.")
    began = time.monotonic()
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(lock)
        file.flush()
        # The lock names all that is needed: no dependency is looked for.
        with _lines_with_the_size(began):
            status = _install(("--require-hashes", "--no-deps", "--requirement", file.name))
    if status == 0:
        print(f"Installed in {time.monotonic() - began:.0f} s: {size_of_environment() / 1e9:.1f} GB.", flush=True)
        began = time.monotonic()
        compile_ahead(TO_RUN)
        compile_ahead(() if to_run else TO_DEVELOP)
        print(f"Compiled what each start would in {time.monotonic() - began:.0f} s.", flush=True)
    return status


def compile_ahead(parts: Sequence[str]) -> None:
    """Run parts of scripts/compile_ahead.py side by side. It only saves time: a part that fails says so itself."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = (sys.executable, "-m", "scripts.compile_ahead")
    running = [subprocess.Popen([*command, part], cwd=ROOT, env=environment) for part in parts]
    for process in running:
        process.wait()


def _install(lock: tuple[str, ...]) -> int:
    if not _runs(*PIP, "install", "-qq", "--require-hashes", "--requirement", str(ROOT / "scripts" / "uv.lock")):
        print("uv cannot be had; pip installs, which takes some minutes more.", flush=True)
    elif _runs(*UV, *sources(pip_settings()), *lock):
        return 0 if _runs(*UV, "--quiet", *PROJECT) else 1
    else:
        print("uv failed for the reason above; pip tries.", flush=True)
    return 0 if _runs(*PIP, "install", "--quiet", *lock) and _runs(*PIP, "install", "-qq", *PROJECT) else 1


def names_left_out() -> frozenset[str]:
    """Return the packages of the lock that running does not need on this machine."""
    names = frozenset((ROOT / "scripts" / "development.names").read_text().split())
    return names if DRIVER.exists() else names | {"triton"}


def without(lock: str, names: frozenset[str]) -> str:
    """Return the lock's text without these packages, their markers and hashes."""
    blocks = re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE)
    return "".join(block for block in blocks if block.partition("==")[0] not in names)


def size_of_environment() -> int:
    """Return the bytes of all files of this Python's environment."""
    return sum(path.lstat().st_size for path in Path(sys.prefix).rglob("*"))


@contextmanager
def _lines_with_the_size(began: float) -> Iterator[None]:
    """Say every ten seconds how much is there; in a terminal, where uv draws its own bars, every minute."""
    over = threading.Event()

    def say() -> None:
        while not over.wait(6 * EVERY_S if sys.stdout.isatty() else EVERY_S):
            seconds, size = time.monotonic() - began, size_of_environment()
            print(f"{seconds:.0f} s: {size / 1e9:.1f} GB are installed, the rest is downloaded first", flush=True)

    lines = threading.Thread(target=say, daemon=True)
    lines.start()
    try:
        yield
    finally:
        over.set()
        lines.join()


def pip_settings() -> dict[str, str]:
    """Return pip's settings by name, from its files and the environment, which knows better."""
    listed = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=True).stdout
    found: dict[str, str] = {}
    for section in ("global.", "install.", ":env:."):
        for line in listed.splitlines():
            if line.startswith(section):
                name, _, value = line.removeprefix(section).partition("=")
                found[name] = str(ast.literal_eval(value))
    return found


def sources(settings: dict[str, str]) -> Iterator[str]:
    """Yield uv's options for the places that pip takes packages from; a hash says which file of them it is."""
    yield from ("--index-strategy", "unsafe-best-match")
    for name, option in ASKED.items():
        for value in settings.get(name, "").split():
            yield from (option, value)
    if settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        yield "--no-index"


def _runs(*command: str) -> bool:
    return subprocess.run(command, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
