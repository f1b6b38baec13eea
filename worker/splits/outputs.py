"""Outputs of a whole set of models: what the scorer compares unlearned models with."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from worker.inference import RunOutputs
from worker.splits.errors import DamagedSplit
from worker.splits.files import read_tensors_and_metadata, write_tensors
from worker.splits.manifest import Manifest, damage_of

Kind = Literal["retrained", "oracle", "originals"]
OUTPUT_PATHS: dict[Kind, str] = {
    "retrained": "hidden/retrained/outputs.safetensors",
    "oracle": "hidden/oracle/outputs.safetensors",
    "originals": "hidden/originals/outputs.safetensors",
}


@dataclass(frozen=True)
class StoredOutputs:
    """confidences float64 [N, S]; retain_accuracy and test_accuracy float64 [N].

    class_accuracy float32 [N, 2, classes], on the retain and on the test set; files made by older versions have none.
    """

    confidences: NDArray[np.float64]
    retain_accuracy: NDArray[np.float64]
    test_accuracy: NDArray[np.float64]
    class_accuracy: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.retain_accuracy)

    @classmethod
    def of_runs(cls, runs: Sequence[RunOutputs]) -> "StoredOutputs":
        return cls(
            confidences=np.stack([run.confidences for run in runs]),
            retain_accuracy=np.array([run.retain_accuracy for run in runs]),
            test_accuracy=np.array([run.test_accuracy for run in runs]),
            class_accuracy=np.stack([run.class_accuracy for run in runs]),
        )

    @classmethod
    def joined(cls, parts: Sequence["StoredOutputs"]) -> "StoredOutputs":
        return cls(
            confidences=np.concatenate([part.confidences for part in parts]),
            retain_accuracy=np.concatenate([part.retain_accuracy for part in parts]),
            test_accuracy=np.concatenate([part.test_accuracy for part in parts]),
            class_accuracy=_all_or_none([part.class_accuracy for part in parts]),
        )

    def write(self, path: Path, *, metadata: dict[str, str] | None = None) -> None:
        arrays = {name: values for name, values in vars(self).items() if values is not None}
        tensors = {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in arrays.items()}
        write_tensors(path, tensors, metadata=metadata)


def _all_or_none(parts: Sequence[NDArray[np.float32] | None]) -> NDArray[np.float32] | None:
    known = [part for part in parts if part is not None]
    return np.concatenate(known) if len(known) == len(parts) else None


def read_stored_outputs(path: Path) -> tuple[StoredOutputs, dict[str, str]]:
    """Return the outputs stored at `path` and the file's metadata. Raises DamagedSplit or SplitNotPrepared."""
    tensors, metadata = read_tensors_and_metadata(path)
    names = ("confidences", "retain_accuracy", "test_accuracy")
    if any(name not in tensors for name in names):
        raise DamagedSplit(f"{path} lacks one of {', '.join(names)}: prepare the split again to make this file anew")
    known = (*names, "class_accuracy")
    return StoredOutputs(**{name: tensors[name].numpy() for name in known if name in tensors}), metadata


def read_outputs(split_dir: Path, kind: Kind = "retrained") -> StoredOutputs:
    """Return the stored outputs of a prepared split, checked against its manifest.

    Raises DamagedSplit naming the file where it is not what was made.
    """
    path = OUTPUT_PATHS[kind]
    record = Manifest.read(split_dir).files.get(path)
    damage = damage_of(split_dir, path, record) if record else None
    if record is None or damage:
        raise DamagedSplit(f"{split_dir}: {damage or path + ': not in the manifest'}. Prepare the split again")
    return read_stored_outputs(split_dir / path)[0]
