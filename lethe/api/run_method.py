"""`lethe.methods.run`: a method on a prepared split, on this machine."""

from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any
from weakref import finalize

from lethe.api.given_models import files_counted
from lethe.api.method_runs import MethodRuns
from lethe.api.split import Split, as_split
from lethe.methods.rendering import render, set_constants
from lethe.tuning.local_run import run_on_split


def run(
    method: str | Path,
    split: Split | str | Path,
    *,
    runs: int = 1,
    seed: int = 0,
    keep: str | Path | None = None,
    timeout_s: float | None = None,
    progress: bool | None = None,
    **constants: Any,
) -> MethodRuns:
    """Return unlearned models: a method run on a prepared split, in a child process.

    method: an id of `lethe methods list`, or a file with `unlearning(net, retain_loader, forget_loader, val_loader)`.
    runs: how many models; to score them, as many as the split has retrained ones. seed: of the first run; the others
    count up. keep: a folder for the models. timeout_s: for all runs together. progress: None for a bar where
    somebody looks on. constants: of the method, such as `LR=0.01`; `preset="..."` names those of one of its
    experiments.
    Raises NotFound for an unknown method, InvalidInput for a wrong constant, a method that fails, or one that takes too
    long. Needs the extra `torch`.
    """
    path = Path(method)
    name = path.stem if path.suffix == ".py" else str(method)
    is_file = path.suffix == ".py"
    text = set_constants(_text(path), constants, owner=str(path)) if is_file else render(name, constants)
    into = Path(mkdtemp(prefix="lethe-models-") if keep is None else keep)
    split_dir = as_split(split).path
    with files_counted(into, runs, progress=progress, what=name):
        done = run_on_split(
            {f"{name}.py": text}, split_dir, runs=runs, seed=seed, weights_dir=into, timeout_s=timeout_s
        )
    made = MethodRuns(name, into, done)
    if keep is None:
        finalize(made, rmtree, into, ignore_errors=True)
    return made


def _text(path: Path) -> str:
    from lethe.errors import InvalidInput
    from lethe.text_files import read_text

    try:
        return read_text(path)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read as Python text: {error}") from error
