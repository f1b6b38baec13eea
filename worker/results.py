"""Outputs of unlearned and retrained models as files: safetensors of a few arrays."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from worker.scoring.final import ModelOutputs

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ShardOutputs:
    """Of n runs on S forget examples: confidences [n, S], accuracies [n], wall times [n] in seconds.

    class_accuracy: float32 [n, 2, classes], on the retain and on the test set; older results have none.
    """

    confidences: Array
    retain_accuracy: Array
    test_accuracy: Array
    wall_time_s: Array
    class_accuracy: NDArray[np.float32] | None = None

    def to_bytes(self) -> bytes:
        arrays = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return save({name: np.ascontiguousarray(array) for name, array in arrays.items() if array is not None})

    @classmethod
    def from_bytes(cls, data: bytes) -> "ShardOutputs":
        return cls(**load(data))


def join(shards: list[ShardOutputs]) -> ShardOutputs:
    """Return the outputs of all runs, in order."""
    columns = {name: [getattr(shard, name) for shard in shards] for name in ShardOutputs.__dataclass_fields__}
    return ShardOutputs(
        **{
            name: np.concatenate(parts)
            for name, parts in columns.items()
            if all(part is not None for part in parts)  # a shard may be older than an array
        }
    )


def model_outputs(path: Path) -> ModelOutputs:
    """Read the stored outputs of a set of retrained models."""
    arrays = load(path.read_bytes())
    return ModelOutputs(
        confidences=arrays["confidences"],
        retain_accuracy=arrays["retain_accuracy"],
        test_accuracy=arrays["test_accuracy"],
    )
