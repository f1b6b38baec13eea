"""`lethe.methods.run`, a method on a prepared split on this machine; and all that somebody gives as a side's models."""

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TypeAlias, Union
from weakref import finalize

import numpy.typing as npt

from lethe.api.split import Split, as_array, as_split, safetensors_arrays
from lethe.methods.rendering import read_method, render, set_constants
from lethe.metrics.core.inputs import open_arrays
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.scoring.arrays import ModelOutputs
from lethe.reports.table import html_table, json_text, written
from lethe.tuning.local_run import LocalRuns, run_on_split

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console
    from torch import nn

    from lethe.evaluation.shard_outputs import RunOutputs

LOOK_S = 0.2
SHOWN = ("wall_time_s", "retain_accuracy", "forget_accuracy", "test_accuracy", "distance")


@dataclass(frozen=True, eq=False, repr=False)
class MethodRuns:
    """Unlearned models of one method. Give it to `lethe.evaluate` or `lethe.score` with the split.

    method: its id, or its file. folder: their checkpoints; a temporary one goes with this object.
    runs: times in seconds, accuracies within [0, 1], and distance of the weights from the original model's, by run.
    """

    method: str
    folder: Path
    runs: LocalRuns

    def __len__(self) -> int:
        return len(self.runs.runs)

    def as_json(self) -> dict[str, Any]:
        """Return what `lethe methods run --json` prints."""
        return self.runs.as_json()

    def to_json(self, path: str | Path | None = None) -> str:
        """Return times and accuracies as JSON, and write them to a file if one is named."""
        return written(json_text(self.as_json()), path)

    def to_frame(self) -> "pd.DataFrame":
        """Return a data frame with a row per run. Needs pandas."""
        import pandas as pd

        return pd.DataFrame([dict(run) for run in self.runs.runs]).rename_axis("run")

    def __repr__(self) -> str:
        return f"MethodRuns({self.method!r}, {len(self)} models, {self.runs.median('wall_time_s'):.3g} s each)"

    def _repr_html_(self) -> str:
        return html_table(("median of runs", self.method), [(name, f"{self.runs.median(name):.4g}") for name in SHOWN])


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
    name, source = read_method(str(method))
    is_file = str(method).endswith(".py")
    text = set_constants(source, constants, owner=str(method)) if is_file else render(name, constants)
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


@contextmanager
def files_counted(folder: Path, total: int, *, progress: bool | None, what: str) -> Iterator[None]:
    """Show how many of `total` files another process has written into a folder since the block began."""
    if not is_shown(progress):
        yield
        return
    from rich.progress import Progress

    began, ended = time.time(), Event()
    with Progress(console=progress_console()) as bar:
        task = bar.add_task(what, total=total)

        def look() -> None:
            last = False
            while not last:
                last = ended.wait(LOOK_S)
                bar.update(task, completed=_written_since(folder, began))

        watcher = Thread(target=look, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


def _written_since(folder: Path, began: float) -> int:
    found = folder.iterdir() if folder.is_dir() else ()
    return sum(path.suffix == ".safetensors" and path.stat().st_mtime >= began - LOOK_S for path in found)


def is_shown(progress: bool | None) -> bool:
    return sys.stderr.isatty() or "ipykernel" in sys.modules if progress is None else progress


def progress_console() -> "Console":
    from rich.console import Console

    return Console() if "ipykernel" in sys.modules else Console(stderr=True)


Arrays = Mapping[str, Any]
Models: TypeAlias = Union[
    npt.ArrayLike, Mapping[str, Any], str, Path, ModelOutputs, MethodRuns, "nn.Module", "Sequence[nn.Module]"
]
"""Confidences [models, examples]; arrays by name; a file of arrays; and with a split also a folder of checkpoints,
torch modules, or what `lethe.methods.run` returned."""


def arrays_of(given: Models, *, side: str, split: Split | None, device: str, progress: bool | None) -> Arrays:
    """Return the arrays of one side by name.

    Raises InvalidMetricInput naming the side where that cannot be done.
    """
    if isinstance(given, ModelOutputs):
        return {name: values for name, values in vars(given).items() if values is not None}
    if isinstance(given, Mapping):
        return (
            {name: as_array(values, name=f"{side} `{name}`") for name, values in given.items()}
            if _is_plain(given, side)
            else given
        )
    if isinstance(given, MethodRuns):
        given = given.folder
    if isinstance(given, str | Path):
        path = Path(given)
        if not path.is_dir():
            return safetensors_arrays(path) if path.suffix == ".safetensors" else open_arrays(path, side)
        evaluator = partial(_of_folder, path)
    elif modules := _modules(given):
        evaluator = partial(_of_modules, modules)
    else:
        return {"confidences": as_array(given, name=f"{side} `confidences`")}
    if split is None:
        raise InvalidMetricInput(f"the {side} models are no arrays: `split` is needed, on which they are evaluated")
    return _evaluated(evaluator, split, device=device, progress=progress)


def _is_plain(given: Arrays, side: str) -> bool:
    """Return whether the mapping holds values in memory. Raises InvalidMetricInput for a state_dict."""
    if any("." in str(name) for name in given):
        raise InvalidMetricInput(
            f"the {side} models look like one state_dict: give torch modules, a folder of checkpoints, or arrays such "
            "as `confidences`"
        )
    return isinstance(given, dict)


def _modules(given: Any) -> "list[nn.Module]":
    """Return the torch modules that were given, one or several; none for anything else."""
    several = list(given) if isinstance(given, Sequence) else [given]
    return several if all(hasattr(each, "state_dict") and hasattr(each, "parameters") for each in several) else []


def _evaluated(evaluate: Any, split: Split, *, device: str, progress: bool | None) -> Arrays:
    from rich.progress import track

    from lethe.evaluation.evaluators import load_evaluator
    from lethe.evaluation.shard_outputs import StoredOutputs

    bar = partial(track, description="evaluating", console=progress_console())
    outputs = evaluate(load_evaluator(split.path, device), bar if is_shown(progress) else lambda items: items)
    return dict(StoredOutputs.of_runs(outputs).arrays())


def _of_folder(folder: Path, evaluator: Any, track: Any) -> "list[RunOutputs]":
    from lethe.evaluation.evaluators import evaluate_folder

    return evaluate_folder(evaluator, folder, track=track)


def _of_modules(modules: "Sequence[nn.Module]", evaluator: Any, track: Any) -> "list[RunOutputs]":
    def states() -> Iterator[Any]:
        track_all: Iterable[Any] = track(modules)
        for module in track_all:
            yield {name: tensor.detach().cpu() for name, tensor in module.state_dict().items()}

    outputs = []
    for number, state in enumerate(states()):
        try:
            outputs.append(evaluator.evaluate_state(state))
        except RuntimeError as error:
            raise InvalidMetricInput(f"module {number} does not fit the split's network: {str(error)[:500]}") from error
    return outputs
