"""Install what requirements.lock names into this Python's own environment, then the project: for `make install`.

uv does it several times sooner than pip, and comes as a wheel by the same way as everything else: its hashes are in
scripts/uv.lock. Where it cannot be had, or fails, pip does it. Every hash is required either way.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
UV = (sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable)
LOCK = ("--require-hashes", "--requirement", str(ROOT / "requirements.lock"))
PROJECT = ("--no-deps", "--no-build-isolation", "--editable", str(ROOT))
# What pip was told of where to get packages, as uv is told it.
ASKED = {
    "index-url": "--default-index",
    "extra-index-url": "--index",
    "find-links": "--find-links",
    "trusted-host": "--allow-insecure-host",
}


def main() -> int:
    """Return the exit status of whoever installed it."""
    if not _runs(*PIP, "install", "-qq", "--require-hashes", "--requirement", str(ROOT / "scripts" / "uv.lock")):
        print("uv cannot be had; pip installs, which takes some minutes more.", flush=True)
    elif _runs(*UV, *sources(pip_settings()), *LOCK):
        return 0 if _runs(*UV, *PROJECT) else 1
    else:
        print("uv failed for the reason above; pip tries.", flush=True)
    return 0 if _runs(*PIP, "install", "--quiet", *LOCK) and _runs(*PIP, "install", "-qq", *PROJECT) else 1


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
