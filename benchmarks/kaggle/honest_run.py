"""A notebook in one process, cell by cell in IPython itself, with Kaggle's folders around it and nothing of Lethe's.

It runs each notebook in a fork of its own and takes the first member of its archive. What Lethe sets before a program
begins is set here as well: the seed, the number of threads, that "cuda" means the CPU, and how older code loads files.

It is started by `benchmarks.kaggle.faithful`.
"""

import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
import zipfile
from pathlib import Path
from typing import NoReturn

import matplotlib.pyplot as plt  # noqa: F401 - loaded once for all
import pandas as pd  # noqa: F401
import sklearn.model_selection  # noqa: F401
import torch
import torch._dynamo
import torchvision  # noqa: F401
from IPython.core.interactiveshell import InteractiveShell
from safetensors.torch import save_file
from traitlets.config import Config

from lethe.runtime import earlier_torch
from lethe.runtime.entry import seed_everything
from lethe.runtime.randomness import Randomness
from sandbox.guest import kaggle_cuda
from sandbox.guest.notebook.entry import install_programs

SEED = 7
TIMEOUT_S = 900
SUFFIXES = frozenset({".pth", ".pt"})
FOLDERS = (Path("/kaggle/tmp"), Path("/kaggle/working"))


def main() -> None:
    """Run a notebook for each line of standard input, [TEXT, RESULT], and answer with what went wrong."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    before = set(Path("/tmp").iterdir())  # the checkout may lie there
    for line in requests:
        notebook, place = json.loads(line)
        with tempfile.TemporaryFile() as log:
            child = os.fork()
            if child == 0:
                for descriptor in (1, 2):
                    os.dup2(log.fileno(), descriptor)
                _run(notebook, Path(place))
            status = _wait(child)
            log.seek(0)
            said = log.read().decode(errors="replace")[-600:] or f"it ended with {status}"
        answers.write(json.dumps(said if status else "") + "\n")
        answers.flush()
        for folder in (*FOLDERS, Path("/tmp")):
            for path in set(folder.iterdir()) - before:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _wait(child: int) -> int:
    until = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def _run(notebook: str, into: Path) -> NoReturn:
    try:
        shell = _shell()
        for cell in json.loads(notebook)["cells"]:
            if cell["cell_type"] == "code":
                shell.run_cell("".join(cell["source"])).raise_error()  # type: ignore[no-untyped-call]
        _write(_first_model(), into)
    except BaseException:
        traceback.print_exc()
        sys.stdout.flush()
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)


class Shell(InteractiveShell):
    """IPython without a terminal."""

    def enable_gui(self, gui: str | None = None) -> None:
        """Have none."""


def _shell() -> InteractiveShell:
    torch.set_num_threads(1)
    seed_everything(SEED)
    Randomness(seed=SEED, mixes=False).install()  # only what a program leaves to chance is another number for it
    kaggle_cuda.install()
    earlier_torch.install()
    install_programs()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # a link to it would lack its libraries
    config = Config()
    config.HistoryManager.enabled, config.InteractiveShell.colors = False, "NoColor"
    sys.path.insert(0, str(Path.cwd()))
    sys.stdin = open(os.devnull)  # noqa: SIM115, PTH123
    return Shell.instance(config=config, user_module=sys.modules["__main__"])


def _first_model() -> Path:
    archive = next((path for folder in FOLDERS for path in folder.glob("submission.zip")), None)
    files = [path for folder in FOLDERS for path in folder.rglob("*") if path.suffix in SUFFIXES]
    if archive is not None:
        with zipfile.ZipFile(archive) as opened:
            opened.extractall("/tmp/archive")
        files = [path for path in Path("/tmp/archive").rglob("*") if path.suffix in SUFFIXES]
    usual = [path for path in files if re.search(r"unlearn.*\d", path.name)] or files
    return min(usual, key=lambda path: [int(part) if part.isdigit() else 0 for part in re.split(r"(\d+)", path.name)])


def _write(path: Path, into: Path) -> None:
    original = torch.load(next(Path("/kaggle/input").glob("*/original_model.pth")), map_location="cpu")
    state = torch.load(path, map_location="cpu")
    if list(original) != [name for name in original if name in state]:
        raise SystemExit(f"{path} has other tensors than the original model")
    save_file({name: state[name].to(value.dtype).contiguous() for name, value in original.items()}, into)


if __name__ == "__main__":
    main()
