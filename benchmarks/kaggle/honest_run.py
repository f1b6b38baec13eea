"""A notebook in one process, cell by cell in IPython itself, with Kaggle's folders around it and nothing of Lethe's.

It runs the notebook and takes the first member of its archive. What Lethe sets before a program begins is set here as
well: the seed, the number of threads, that "cuda" means the CPU, and how older code loads files.

python -m benchmarks.kaggle.honest_run NOTEBOOK RESULT
"""

import json
import re
import sys
import zipfile
from pathlib import Path

import torch
from IPython.core.interactiveshell import InteractiveShell
from safetensors.torch import save_file
from traitlets.config import Config

from lethe.runtime import earlier_torch
from lethe.runtime.entry import seed_everything
from lethe.runtime.randomness import Randomness
from sandbox.guest import kaggle_cuda
from sandbox.guest.notebook.programs import install_programs

SEED = 7
FOLDERS = (Path("/kaggle/tmp"), Path("/kaggle/working"))


def main() -> None:
    """Run the notebook named on the command line."""
    notebook, into = map(Path, sys.argv[1:])
    shell = _shell()
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            shell.run_cell("".join(cell["source"])).raise_error()
    _write(_first_model(), into)


class Shell(InteractiveShell):
    """IPython without a terminal."""

    def enable_gui(self, gui: str | None = None) -> None:
        """Have none."""


def _shell() -> InteractiveShell:
    torch.set_num_threads(1)
    seed_everything(SEED)
    Randomness(run=0, seed=SEED).install()  # only what a program leaves to chance is another number for it
    kaggle_cuda.install()
    earlier_torch.install()
    install_programs()
    config = Config()
    config.HistoryManager.enabled = False
    sys.path.insert(0, str(Path.cwd()))
    return Shell.instance(config=config, user_module=sys.modules["__main__"])


def _first_model() -> Path:
    archive = next((path for folder in FOLDERS for path in folder.glob("submission.zip")), None)
    files = [path for folder in FOLDERS for path in folder.rglob("*") if path.suffix in {".pth", ".pt"}]
    if archive is not None:
        names = {Path(name).name for name in zipfile.ZipFile(archive).namelist()}
        files = [path for path in files if path.name in names]
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
