"""Starts a notebook's honest run, `honest_run`, in a root of its own that holds Kaggle's folders."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from sandbox.backends.bubblewrap import find_bwrap

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 900


class NoHonestModel(Exception):
    """The program has left no model; the message says what it said last."""


def honest_model(notebook: Path, *, layout: Path, into: Path) -> None:
    """Run the notebook and write its first model, as safetensors. Raises NoHonestModel."""
    into.parent.mkdir(parents=True, exist_ok=True)
    kaggle = into.parent / f".{into.stem}-kaggle"
    for name in ("tmp", "working"):
        (kaggle / name).mkdir(parents=True)
    words = [str(find_bwrap()), "--tmpfs", "/"]
    for folder in sorted(Path("/").iterdir()):
        if folder.is_symlink():
            words += ["--symlink", str(folder.readlink()), str(folder)]
        elif folder.name not in {"kaggle", "scratch", "dev", "proc"} and folder.is_dir():
            words += ["--ro-bind", str(folder), str(folder)]
    words += ["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/scratch", "--unshare-net"]
    words += ["--ro-bind", str(layout / "input"), "/kaggle/input"]
    for name in ("tmp", "working"):
        words += ["--bind", str(kaggle / name), f"/kaggle/{name}"]
    words += ["--bind", str(into.parent), "/result", "--chdir", "/kaggle/working", sys.executable, "-m"]
    words += ["benchmarks.kaggle.honest_run", str(notebook.resolve()), f"/result/{into.name}"]
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": str(ROOT),
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "HOME": "/scratch",
        "TMPDIR": "/scratch",
        "MPLBACKEND": "Agg",
    }
    try:
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise NoHonestModel(f"it took more than {TIMEOUT_S} s") from error
    finally:
        shutil.rmtree(kaggle, ignore_errors=True)
    if done.returncode or not into.is_file():
        raise NoHonestModel((done.stdout + done.stderr)[-600:])
