"""Outputs of a complete set of models: what the scorer compares unlearned models with."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from lethe.data.errors import DamagedSplit
from lethe.data.files import read_tensors_and_metadata, write_tensors
from lethe.evaluation.manifest import Manifest, find_damage
from lethe.evaluation.shard_outputs import StoredOutputs

Kind = Literal["retrained", "oracle", "originals"]
RANDOM_OUTPUTS = "hidden/random/outputs.safetensors"  # of networks that were never trained: random_forget_logits
RECIPE_OUTPUTS = "hidden/recipes/outputs.safetensors"  # recipe_confidences and so on: of retraining by other recipes
PROBED_REFERENCES = "hidden/probes.safetensors"  # arrays of level 4 by side: retrained/relearn_epochs and so on
ORIGINAL_OUTPUTS = "hidden/original/outputs.safetensors"  # of the one original model that all runs start from
OUTPUT_PATHS: dict[Kind, str] = {
    "retrained": "hidden/retrained/outputs.safetensors",
    "oracle": "hidden/oracle/outputs.safetensors",
    "originals": "hidden/originals/outputs.safetensors",
}


def write_outputs(outputs: StoredOutputs, path: Path, *, metadata: dict[str, str] | None = None) -> None:
    tensors = {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in outputs.arrays().items()}
    write_tensors(path, tensors, metadata=metadata)


def read_stored_outputs(path: Path) -> tuple[StoredOutputs, dict[str, str]]:
    """Return the outputs stored at `path` and the file's metadata. Raises DamagedSplit or SplitNotPrepared."""
    tensors, metadata = read_tensors_and_metadata(path)
    names = StoredOutputs.own_arrays()[:3]
    if any(name not in tensors for name in names):
        raise DamagedSplit(f"{path} lacks one of {', '.join(names)}: prepare the split again to make this file again")
    return StoredOutputs.of_arrays({name: tensor.numpy() for name, tensor in tensors.items()}), metadata


def read_outputs(split_dir: Path, kind: Kind = "retrained") -> StoredOutputs:
    """Return the stored outputs of a prepared split, checked against its manifest.

    Raises DamagedSplit naming the file where it is not what was made.
    """
    path = OUTPUT_PATHS[kind]
    record = Manifest.read(split_dir).files.get(path)
    damage = find_damage(split_dir, path, record) if record else None
    if record is None or damage:
        raise DamagedSplit(f"{split_dir}: {damage or path + ': not in the manifest'}. Prepare the split again")
    return read_stored_outputs(split_dir / path)[0]


def write_probed_references(split_dir: Path, sides: Mapping[str, Mapping[str, NDArray[Any]]]) -> None:
    """Store the references' arrays of level 4, by side."""
    named = {f"{side}/{name}": array for side, arrays in sides.items() for name, array in arrays.items()}
    tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in named.items()}
    write_tensors(split_dir / PROBED_REFERENCES, tensors)


def read_probed_references(split_dir: Path) -> dict[str, dict[str, NDArray[Any]]]:
    """Return the references' arrays of level 4, by side."""
    found: dict[str, dict[str, NDArray[Any]]] = {}
    for name, tensor in read_tensors_and_metadata(split_dir / PROBED_REFERENCES)[0].items():
        side, _, array = name.partition("/")
        found.setdefault(side, {})[array] = tensor.numpy()
    return found
