"""The outputs that a score compares: read from .npz files or a prepared split, and written."""

import zlib
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.arrays import ModelOutputs


def load_outputs(path: Path) -> ModelOutputs:
    """Return the outputs stored in a .npz file under `confidences`, `retain_accuracy` and `test_accuracy`.

    `confidences` has shape (n_models, n_examples); the accuracies, shape (n_models,), may be absent. Nothing pickled
    is read. Raises InvalidScoreInput, naming the file, if it cannot be read or holds no confidences.
    """
    try:
        with path.open("rb") as file:  # numpy leaves one open that it cannot read
            archive = np.load(file, allow_pickle=False)
            is_single = isinstance(archive, np.ndarray)
            stored = {"": archive} if is_single else {name: archive[name] for name in archive.files}
    except (OSError, ValueError, BadZipFile, EOFError, zlib.error) as error:
        raise InvalidScoreInput(f"{path} cannot be read as a .npz file of plain arrays: {error}") from error
    if "" in stored:
        raise InvalidScoreInput(f"{path} is no .npz file: it holds a single array without a name")
    if "confidences" not in stored:
        raise InvalidScoreInput(f"{path} has no array 'confidences', only {sorted(stored) or 'nothing'}")
    return ModelOutputs(stored["confidences"], stored.get("retain_accuracy"), stored.get("test_accuracy"))


def save_outputs(path: Path, outputs: ModelOutputs) -> None:
    """Write outputs to a .npz file that `load_outputs` reads; accuracies that are None are left out."""
    arrays = {"confidences": outputs.confidences}
    if outputs.retain_accuracy is not None:
        arrays["retain_accuracy"] = outputs.retain_accuracy
    if outputs.test_accuracy is not None:
        arrays["test_accuracy"] = outputs.test_accuracy
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


STORED = "outputs.safetensors"
RETRAINED, ORACLE, ORIGINAL = (Path("hidden") / side / STORED for side in ("retrained", "oracle", "original"))


def read_outputs(path: Path) -> ModelOutputs:
    """Return the outputs in a .npz file, or in a prepared split's outputs.safetensors. Raises InvalidScoreInput."""

    return _from_safetensors(path) if path.suffix == ".safetensors" else load_outputs(path)


def split_outputs(
    retrained: Path | None, oracle: Path | None, split: Path | None
) -> tuple[ModelOutputs, ModelOutputs | None]:
    """Return what is compared with, and the oracle's: the files named, else those of the split.

    Raises InvalidScoreInput where neither is given.
    """
    if split is not None:
        if not (split / RETRAINED).is_file():
            raise InvalidScoreInput(f"{split} is not a prepared split: it has no {RETRAINED}")
        retrained = retrained or split / RETRAINED
        oracle = oracle or split / ORACLE
    if retrained is None:
        raise InvalidScoreInput("name what to compare with: --retrained FILE, or --split DIR of a prepared split")
    return read_outputs(retrained), None if oracle is None else read_outputs(oracle)


def split_side(split: Path, side: str) -> ModelOutputs:
    """Return the stored outputs of one side of a prepared split.

    Raises InvalidInput for another side than `retrained`, `oracle` and `original`, or one that the split lacks.
    """
    from lethe.errors import InvalidInput

    files = {"retrained": RETRAINED, "oracle": ORACLE, "original": ORIGINAL}
    if side not in files:
        raise InvalidInput(f"a split has no models {side!r}; there are {', '.join(files)}")
    if not (split / files[side]).is_file():
        raise InvalidInput(f"{split} has no outputs of {side} models ({files[side]}): prepare the split again")
    return read_outputs(split / files[side])


def _from_safetensors(path: Path) -> ModelOutputs:
    arrays = safetensors_arrays(path)
    if "confidences" not in arrays:
        raise InvalidScoreInput(f"{path} has no array 'confidences', only {', '.join(sorted(arrays)) or 'nothing'}")
    return ModelOutputs(arrays["confidences"], arrays.get("retain_accuracy"), arrays.get("test_accuracy"))


def safetensors_arrays(path: Path) -> dict[str, Any]:
    """Return the arrays of a safetensors file. Raises InvalidScoreInput if it cannot be read."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        arrays: dict[str, Any] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise InvalidScoreInput(f"{path} cannot be read as a safetensors file: {error}") from error
    return arrays
