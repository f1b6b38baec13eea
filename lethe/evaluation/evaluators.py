"""What evaluates the models of a prepared split, or of checkpoint files, by the kind of the split's task.

Each kind is a module with `load`, `load_sample` and `shared_arrays`; network.json names the kind.
"""

import gc
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor

from lethe.data.files import read_json
from lethe.errors import InvalidInput
from lethe.evaluation.manifest import NETWORK_PATH
from lethe.evaluation.shard_outputs import RunOutputs

IMAGES = "image-classification"
MODULES = {IMAGES: "lethe.evaluation.image_evaluation", "causal-lm": "lethe.evaluation.answer_evaluation"}


class Evaluator(Protocol):
    """Turns the weights of models of one split into the arrays that they are scored by."""

    @property
    def network(self) -> Mapping[str, Any]: ...

    @property
    def device(self) -> torch.device: ...

    def evaluate(self, weights: bytes, *, integer_buffers: Mapping[str, Tensor] | None = None) -> RunOutputs:
        """Return the outputs of the model in `weights`, one checked safetensors file. Raises NonFiniteOutputs."""

    def evaluate_state(self, state: Mapping[str, Tensor]) -> RunOutputs:
        """Return the outputs of the model with this state_dict. Raises NonFiniteOutputs."""


def load_evaluator(split_dir: Path, device: str = "cpu") -> Evaluator:
    """Return the evaluator of a prepared split, having checked the hashes of the files that it reads.

    Raises SplitNotPrepared, or DamagedSplit naming the file.
    """
    evaluator: Evaluator = _module(split_dir / NETWORK_PATH).load(split_dir, device=device)
    return evaluator


def sample_evaluator(sample_dir: Path) -> Evaluator:
    """Return what evaluates models on the public sample; its validation set is used as the hidden test set.

    As on the server, a run's integers are those of the original model.
    """
    evaluator: Evaluator = _module(sample_dir / "network.json").load_sample(sample_dir)
    return evaluator


def shared_arrays(split_dir: Path) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of a prepared split that belong to no model, such as labels."""
    arrays: dict[str, NDArray[np.generic]] = _module(split_dir / NETWORK_PATH).shared_arrays(split_dir)
    return arrays


def _module(network_file: Path) -> Any:
    return import_module(MODULES[read_json(network_file).get("task", IMAGES)])


class BackgroundEvaluator:
    """Evaluates a run's weights while the next run is unlearning: one thread, at most `waiting` models held.

    Results are those of the evaluator itself; order and overlap do not touch their bits.
    """

    def __init__(self, evaluator: Evaluator, *, waiting: int = 2) -> None:
        self._evaluator = evaluator
        self._places = threading.BoundedSemaphore(waiting)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evaluate")

    def submit(self, weights: bytes, *, integer_buffers: Mapping[str, Tensor] | None = None) -> Future[RunOutputs]:
        """Accept the arguments of evaluate; waits while too many are held. The future raises what evaluate raises."""
        self._places.acquire()
        future = self._thread.submit(self._evaluator.evaluate, weights, integer_buffers=integer_buffers)
        future.add_done_callback(lambda _: self._places.release())
        return future

    def again(self, weights: bytes, *, integer_buffers: Mapping[str, Tensor] | None = None) -> Future[RunOutputs]:
        """Evaluate once more, after what was already taken; the device's memory that nothing uses is free by then."""
        return self._thread.submit(self._evaluate_again, weights, integer_buffers)

    def _evaluate_again(self, weights: bytes, integer_buffers: Mapping[str, Tensor] | None) -> RunOutputs:
        gc.collect()
        if self._evaluator.device.type == "cuda":
            torch.cuda.empty_cache()
        return self._evaluator.evaluate(weights, integer_buffers=integer_buffers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        self._thread.shutdown(cancel_futures=error_type is not None)


SUFFIXES = (".safetensors", ".pth", ".pt")


def evaluate_folder(
    evaluator: Evaluator, folder: Path, *, track: Callable[[list[Path]], Iterable[Path]] = iter
) -> list[RunOutputs]:
    """Return the outputs of every checkpoint in a folder. Raises InvalidInput naming the one that does not fit.

    track: wraps the files, for a progress bar.
    """
    outputs = []
    for path in track(checkpoint_files(folder)):
        try:
            outputs.append(evaluator.evaluate_state(read_state(path)))
        except (RuntimeError, InvalidInput) as error:
            raise InvalidInput(f"{path} does not fit the split's network: {str(error)[:500]}") from error
    return outputs


def checkpoint_files(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder in the order of their names, numbers as numbers. Raises InvalidInput."""
    if not folder.is_dir():
        raise InvalidInput(f"{folder} is not a folder; name the folder that holds the checkpoints")
    found = sorted((path for path in folder.iterdir() if path.suffix in SUFFIXES), key=_natural)
    if not found:
        raise InvalidInput(f"{folder} holds no checkpoint; allowed are {', '.join(SUFFIXES)}")
    return found


def _natural(path: Path) -> list[tuple[bool, int, str]]:
    """Order model_2 before model_10."""
    parts: list[tuple[bool, int, str]] = []
    digits = ""
    for character in path.name + "\0":
        if character.isdecimal():
            digits += character
            continue
        if digits:
            parts.append((False, int(digits), ""))
            digits = ""
        parts.append((True, 0, character))
    return parts


def read_state(path: Path) -> dict[str, Tensor]:
    """Return the state_dict in a checkpoint. Only tensors are read. Raises InvalidInput."""
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, SafetensorError) as error:
        raise InvalidInput(f"{path} cannot be read as a checkpoint: {str(error)[:300]}") from error
    except Exception as error:  # pickle's own errors have no common base
        raise InvalidInput(f"{path} holds more than tensors and is not read: {str(error)[:300]}") from error
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise InvalidInput(f"{path} is not a state_dict, a mapping of names to tensors")
    return state
