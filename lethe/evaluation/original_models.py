"""The original models of a split whose runs have their own: which file holds which, and one of them by itself."""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from lethe.data.errors import DamagedSplit, SplitNotPrepared
from lethe.evaluation.manifest import Manifest
from lethe.runtime.weights_layout import ORIGINAL_MODEL, read_layout

ORIGINAL = f"visible/{ORIGINAL_MODEL}"


def find_place(manifest: Manifest, index: int) -> tuple[str, int]:
    """Return the file that holds original model `index`, and the model's position in it.

    Raises SplitNotPrepared where no file does.
    """
    for name, step in manifest.steps.items():
        if name.startswith("originals-") and "first_model" in step.values:
            position = index - int(step.values["first_model"])
            if 0 <= position < int(step.values["n_models"]):
                return next(iter(step.files)), position
    raise SplitNotPrepared(
        f"the {manifest.visibility} split of {manifest.competition} was prepared for setup {manifest.setup} and has no "
        f"original model {index}: prepare it again"
    )


def read_integer_buffers(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a model's file that are not floating point: counters, positions to look up."""
    with safe_open(path, framework="pt") as model:
        names = [name for name in model.keys() if not model.get_slice(name).get_dtype().startswith(("F", "BF"))]  # noqa: SIM118
        # copies: what safetensors returns are views of the file, which show what is written to it later
        return {name: model.get_tensor(name).clone() for name in names}


def read_original(split_dir: Path, path: str, position: int) -> bytes:
    """Return one of the models stored at `path` as a safetensors file with the header of the visible original model.

    Raises DamagedSplit.
    """
    layout = read_layout((split_dir / ORIGINAL).read_bytes())
    parts = [layout.header]
    try:
        with safe_open(split_dir / path, framework="pt") as models:
            for slot in layout.tensors:
                values = models.get_slice(slot.name)[position : position + 1].contiguous()
                parts.append(values.reshape(-1).view(torch.uint8).numpy().tobytes())
    except (SafetensorError, OSError) as error:
        raise DamagedSplit(f"{split_dir / path} is damaged ({error}): prepare the split again") from error
    model = b"".join(parts)
    if len(model) != layout.frame_bytes:
        raise DamagedSplit(f"{split_dir / path} holds other tensors than {ORIGINAL}: prepare the split again")
    return model
