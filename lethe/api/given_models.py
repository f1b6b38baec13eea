"""What somebody gives as the models of one side, as arrays by name."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, Union

import numpy.typing as npt

from lethe.api.method_runs import MethodRuns, is_shown, progress_console
from lethe.api.score_inputs import safetensors_arrays
from lethe.api.split import Split, as_array
from lethe.metrics.core.inputs import open_arrays
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.scoring.arrays import ModelOutputs

if TYPE_CHECKING:
    from torch import nn

    from lethe.evaluation.shard_outputs import RunOutputs

Arrays = Mapping[str, Any]
Models: TypeAlias = Union[
    npt.ArrayLike, Mapping[str, Any], str, Path, ModelOutputs, MethodRuns, "nn.Module", "Sequence[nn.Module]"
]
"""Confidences [models, examples]; arrays by name; a file of arrays; and with a split also a folder of checkpoints,
torch modules, or what `lethe.methods.run` returned."""
T = TypeVar("T")


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
    from lethe.evaluation.evaluators import load_evaluator
    from lethe.evaluation.shard_outputs import StoredOutputs

    outputs = evaluate(load_evaluator(split.path, device), partial(tracked, progress=progress))
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


def tracked(items: Sequence[T], *, progress: bool | None) -> Iterable[T]:
    """Return the items, with a bar on standard error. progress: None shows it where somebody looks on."""
    return _with_bar(items) if is_shown(progress) else items


def _with_bar(items: Sequence[T]) -> Iterator[T]:
    from rich.progress import track

    yield from track(items, description="evaluating", console=progress_console())
