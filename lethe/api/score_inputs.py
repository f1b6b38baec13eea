"""The outputs that a score compares: of .npz files, or of a prepared split."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lethe.metrics.scoring.score import ModelOutputs

STORED = "outputs.safetensors"
RETRAINED, ORACLE, ORIGINAL = (Path("hidden") / side / STORED for side in ("retrained", "oracle", "original"))


def read_outputs(path: Path) -> "ModelOutputs":
    """Return the outputs in a .npz file, or in a prepared split's outputs.safetensors. Raises InvalidScoreInput."""
    from lethe.metrics.scoring.npz_files import load_outputs

    return _from_safetensors(path) if path.suffix == ".safetensors" else load_outputs(path)


def split_outputs(
    retrained: Path | None, oracle: Path | None, split: Path | None
) -> tuple["ModelOutputs", "ModelOutputs | None"]:
    """Return what is compared with, and the oracle's: the files named, else those of the split.

    Raises InvalidScoreInput where neither is given.
    """
    from lethe.metrics.core.invalid_input import InvalidScoreInput

    if split is not None:
        if not (split / RETRAINED).is_file():
            raise InvalidScoreInput(f"{split} is not a prepared split: it has no {RETRAINED}")
        retrained = retrained or split / RETRAINED
        oracle = oracle or split / ORACLE
    if retrained is None:
        raise InvalidScoreInput("name what to compare with: --retrained FILE, or --split DIR of a prepared split")
    return read_outputs(retrained), None if oracle is None else read_outputs(oracle)


def split_side(split: Path, side: str) -> "ModelOutputs":
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


def _from_safetensors(path: Path) -> "ModelOutputs":
    from lethe.metrics.core.invalid_input import InvalidScoreInput
    from lethe.metrics.scoring.score import ModelOutputs

    arrays = safetensors_arrays(path)
    if "confidences" not in arrays:
        raise InvalidScoreInput(f"{path} has no array 'confidences', only {', '.join(sorted(arrays)) or 'nothing'}")
    return ModelOutputs(arrays["confidences"], arrays.get("retain_accuracy"), arrays.get("test_accuracy"))


def safetensors_arrays(path: Path) -> dict[str, Any]:
    """Return the arrays of a safetensors file. Raises InvalidScoreInput if it cannot be read."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    from lethe.metrics.core.invalid_input import InvalidScoreInput

    try:
        arrays: dict[str, Any] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise InvalidScoreInput(f"{path} cannot be read as a safetensors file: {error}") from error
    return arrays
