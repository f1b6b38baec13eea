"""Outputs of a complete set of models: what the scorer compares unlearned models with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from lethe.data.errors import DamagedSplit
from lethe.data.files import read_tensors_and_metadata, write_tensors
from lethe.evaluation import capture
from lethe.evaluation.inference import RunOutputs
from lethe.evaluation.manifest import Manifest, find_damage

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


@dataclass(frozen=True)
class StoredOutputs:
    """confidences float64 [N, S]; retain_accuracy and test_accuracy float64 [N].

    class_accuracy float32 [N, 2, classes], on the retain and on the test set; files made by older versions have none.
    captured: arrays of the split's capture levels, each with the models along its first axis.
    """

    confidences: NDArray[np.float64]
    retain_accuracy: NDArray[np.float64]
    test_accuracy: NDArray[np.float64]
    class_accuracy: NDArray[np.float32] | None = None
    captured: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.retain_accuracy)

    @classmethod
    def of_runs(cls, runs: Sequence[RunOutputs]) -> "StoredOutputs":
        return cls(
            confidences=np.stack([run.confidences for run in runs]),
            retain_accuracy=np.array([run.retain_accuracy for run in runs]),
            test_accuracy=np.array([run.test_accuracy for run in runs]),
            class_accuracy=np.stack([run.class_accuracy for run in runs]),
            captured=capture.stacked([run.captured for run in runs]),
        )

    @classmethod
    def joined(cls, parts: Sequence["StoredOutputs"]) -> "StoredOutputs":
        return cls(
            confidences=np.concatenate([part.confidences for part in parts]),
            retain_accuracy=np.concatenate([part.retain_accuracy for part in parts]),
            test_accuracy=np.concatenate([part.test_accuracy for part in parts]),
            class_accuracy=_all_or_none([part.class_accuracy for part in parts]),
            captured=capture.joined([part.captured for part in parts]),
        )

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return every array by its name."""
        own = {name: getattr(self, name) for name in OWN_ARRAYS}
        return {name: values for name, values in own.items() if values is not None} | dict(self.captured)

    def write(self, path: Path, *, metadata: dict[str, str] | None = None) -> None:
        tensors = {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in self.arrays().items()}
        write_tensors(path, tensors, metadata=metadata)


OWN_ARRAYS = ("confidences", "retain_accuracy", "test_accuracy", "class_accuracy")


def _all_or_none(parts: Sequence[NDArray[np.float32] | None]) -> NDArray[np.float32] | None:
    known = [part for part in parts if part is not None]
    return np.concatenate(known) if len(known) == len(parts) else None


def read_stored_outputs(path: Path) -> tuple[StoredOutputs, dict[str, str]]:
    """Return the outputs stored at `path` and the file's metadata. Raises DamagedSplit or SplitNotPrepared."""
    tensors, metadata = read_tensors_and_metadata(path)
    names = OWN_ARRAYS[:3]
    if any(name not in tensors for name in names):
        raise DamagedSplit(f"{path} lacks one of {', '.join(names)}: prepare the split again to make this file again")
    own = {name: tensors.pop(name).numpy() for name in OWN_ARRAYS if name in tensors}
    return StoredOutputs(**own, captured={name: tensor.numpy() for name, tensor in tensors.items()}), metadata


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
