"""Model outputs in a .npz file, for scoring without a server."""

import zlib
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.score import ModelOutputs


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
