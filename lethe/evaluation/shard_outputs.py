"""Outputs of unlearned and retrained models as files: safetensors of a few arrays."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from lethe.evaluation import capture
from lethe.metrics.scoring.model_outputs import ModelOutputs

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ShardOutputs:
    """Of n runs on S forget examples: confidences [n, S], accuracies [n], wall times [n] in seconds.

    class_accuracy: float32 [n, 2, classes], on the retain and on the test set; older results have none.
    captured: further arrays by the names of the array catalogue, each with the runs along its first axis.
    weights_sha256: of the file with the weights that are kept of the first runs, None if none are.
    """

    confidences: Array
    retain_accuracy: Array
    test_accuracy: Array
    wall_time_s: Array
    class_accuracy: NDArray[np.float32] | None = None
    captured: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)
    weights_sha256: str | None = None

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return every array by its name."""
        own = {name: getattr(self, name) for name in OWN_ARRAYS}
        return {name: array for name, array in own.items() if array is not None} | dict(self.captured)

    def to_bytes(self) -> bytes:
        metadata = {WEIGHTS: self.weights_sha256} if self.weights_sha256 else None
        return save({name: np.ascontiguousarray(array) for name, array in self.arrays().items()}, metadata)

    @classmethod
    def from_bytes(cls, data: bytes) -> "ShardOutputs":
        arrays = load(data)
        own = {name: arrays.pop(name) for name in OWN_ARRAYS if name in arrays}
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        return cls(**own, captured=arrays, weights_sha256=header.get("__metadata__", {}).get(WEIGHTS))


WEIGHTS = "weights_sha256"
OWN_ARRAYS = tuple(each.name for each in fields(ShardOutputs) if each.name not in ("captured", WEIGHTS))


def join(shards: list[ShardOutputs]) -> ShardOutputs:
    """Return the outputs of all runs, in order."""
    columns = {name: [getattr(shard, name) for shard in shards] for name in OWN_ARRAYS}
    return ShardOutputs(
        **{
            name: np.concatenate(parts)
            for name, parts in columns.items()
            if all(part is not None for part in parts)  # a shard may be older than an array
        },
        captured=capture.joined([shard.captured for shard in shards]),
        weights_sha256=None,  # each shard has its own
    )


def model_outputs(path: Path) -> ModelOutputs:
    """Read the stored outputs of a set of retrained models."""
    arrays = load(path.read_bytes())
    return ModelOutputs(
        confidences=arrays["confidences"],
        retain_accuracy=arrays["retain_accuracy"],
        test_accuracy=arrays["test_accuracy"],
    )
