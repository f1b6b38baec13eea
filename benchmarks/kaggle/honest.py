"""Starts honest runs, `honest_run`, in a root of their own that holds Kaggle's folders."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import IO, Self, cast

from sandbox.backends.bubblewrap import find_bwrap

ROOT = Path(__file__).parents[2]
HIDDEN = frozenset({"kaggle", "scratch", "dev", "proc", "tmp", "result"})  # of this machine's root


class NoHonestModel(Exception):
    """The program has left no model; the message is what it said last."""


class HonestRuns:
    """A process that runs notebooks one after another, each in a fork of its own, with empty folders.

    layout: the folder with the split's `input`. keep: where results may be written.
    """

    def __init__(self, layout: Path, keep: Path) -> None:
        self._layout, self._keep = layout, keep

    def __enter__(self) -> Self:
        self._keep.mkdir(parents=True, exist_ok=True)
        words = [str(find_bwrap()), *self._view(), sys.executable, "-m", "benchmarks.kaggle.honest_run"]
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "PYTHONPATH": str(ROOT),
            "PYTHONHASHSEED": "0",
            "OMP_NUM_THREADS": "1",
            "HOME": "/scratch",
            "TMPDIR": "/scratch",
            "MPLBACKEND": "Agg",
        }
        self._process = subprocess.Popen(
            words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        cast(IO[str], self._process.stdin).close()
        self._process.wait()

    def run(self, notebook: Path, into: Path) -> None:
        """Run the notebook and write its first model, as safetensors. Raises NoHonestModel."""
        into.parent.mkdir(parents=True, exist_ok=True)
        requests = cast(IO[str], self._process.stdin)
        place = Path("/result") / into.relative_to(self._keep)
        requests.write(json.dumps([notebook.read_text(encoding="utf-8"), str(place)]) + "\n")
        requests.flush()
        said = json.loads(cast(IO[str], self._process.stdout).readline() or '"it ended"')
        if said:
            raise NoHonestModel(said)

    def _view(self) -> list[str]:
        words = ["--tmpfs", "/"]
        for folder in sorted(Path("/").iterdir()):
            if folder.is_symlink():
                words += ["--symlink", str(folder.readlink()), str(folder)]
            elif folder.name not in HIDDEN and folder.is_dir():
                words += ["--ro-bind", str(folder), str(folder)]
        words += ["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/scratch", "--tmpfs", "/tmp", "--unshare-net"]
        for place in (ROOT, Path(sys.prefix), Path(sys.base_prefix)):
            if place.parts[1] in HIDDEN:  # the checkout or its Python lies below /tmp
                words += ["--ro-bind", str(place), str(place)]
        words += ["--ro-bind", str(self._layout / "input"), "/kaggle/input", "--bind", str(self._keep), "/result"]
        return [*words, "--tmpfs", "/kaggle/tmp", "--tmpfs", "/kaggle/working", "--chdir", "/kaggle/working"]
