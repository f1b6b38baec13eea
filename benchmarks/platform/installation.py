"""Seconds and bytes of an environment made from the lock file by uv, by pip, and by pip without bytecode.

Each way has a new environment and empty caches; they run one after another, a quarter of an hour in all.
Each needs 8 GB of disk: `python -m benchmarks.platform.installation --below ~`
"""

import argparse
import os
import subprocess
import tempfile
import time
import venv
from pathlib import Path

from scripts.install import PIP, ROOT

PIP_INSTALL = ("-m", *PIP[2:], "install", "-q", "--require-hashes", "--no-deps", "-r", str(ROOT / "requirements.lock"))
WAYS = {
    "uv, as `make install`": (str(ROOT / "scripts" / "install.py"),),
    "pip --no-compile": (*PIP_INSTALL, "--no-compile"),
    "pip": PIP_INSTALL,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--below", type=Path, help="the folder to make the environments in (the temporary folder)")
    below = parser.parse_args().below
    if below and not below.is_dir():
        parser.error(f"{below} is no folder")
    for way, words in WAYS.items():
        with tempfile.TemporaryDirectory(prefix="lethe-installation-", dir=below) as folder:
            seconds, size = made(words, Path(folder))
        print(f"{way:24}{seconds:7.0f} s {size / 1e9:6.2f} GB   load {os.getloadavg()[0]:.1f}", flush=True)


def made(words: tuple[str, ...], folder: Path) -> tuple[float, int]:
    """Make the environment. Return the seconds and the bytes of its files."""
    venv.create(folder / "environment", with_pip=True)
    empty = {"PIP_NO_CACHE_DIR": "1", "UV_NO_CACHE": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    started = time.monotonic()
    program = folder / "environment" / "bin" / "python"
    subprocess.run([program, *words], check=True, stdout=subprocess.DEVNULL, env=os.environ | empty)
    seconds = time.monotonic() - started
    return seconds, sum(path.lstat().st_size for path in folder.rglob("*"))


if __name__ == "__main__":
    main()
