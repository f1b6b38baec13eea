"""Folders of checkpoints: .safetensors, .pth and .pt state_dicts, one a model."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from lethe.errors import InvalidInput
from lethe.evaluation.evaluators import Evaluator
from lethe.evaluation.shard_outputs import RunOutputs

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
