"""Outputs of models as arrays and as files of a few arrays: of a run, of a set of models, of a shard's runs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from lethe.evaluation import capture
from lethe.metrics.scoring.model_outputs import ModelOutputs

Array = NDArray[np.float64]
WEIGHTS = "weights_sha256"


@dataclass(frozen=True)
class RunOutputs:
    """What one unlearned model scores by, and what organisers see beside it.

    confidences: float64 [S], the statistic h of each forget example. class_accuracy: float32 [2, classes], on the
    retain and on the test set; NaN where a set has no image of the class. captured: the arrays of the split's capture
    levels (lethe.metrics.core.array_catalogue), without the axis of models.
    """

    confidences: Array
    retain_accuracy: float
    test_accuracy: float
    class_accuracy: NDArray[np.float32]
    captured: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredOutputs:
    """Of N models on S forget examples: confidences float64 [N, S]; retain_accuracy and test_accuracy float64 [N].

    class_accuracy: float32 [N, 2, classes], on the retain and on the test set; files made by older versions have none.
    captured: further arrays by the names of the array catalogue, each with the models along its first axis.
    """

    confidences: Array
    retain_accuracy: Array
    test_accuracy: Array
    class_accuracy: NDArray[np.float32] | None = None
    captured: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.retain_accuracy)

    @classmethod
    def own_arrays(cls) -> list[str]:
        """Return the names of the arrays that are not captured ones."""
        return [each.name for each in fields(cls) if each.name not in ("captured", WEIGHTS)]

    @classmethod
    def of_runs(cls, runs: Sequence[RunOutputs], **own: Any) -> Self:
        """Return the outputs of these models; own: fields of a class below."""
        return cls(
            confidences=np.stack([run.confidences for run in runs]),
            retain_accuracy=np.array([run.retain_accuracy for run in runs]),
            test_accuracy=np.array([run.test_accuracy for run in runs]),
            class_accuracy=np.stack([run.class_accuracy for run in runs]),
            captured=capture.stacked([run.captured for run in runs]),
            **own,
        )

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the outputs of all models, in order. A part may be older than an array, which then none has."""
        columns = {name: [getattr(part, name) for part in parts] for name in cls.own_arrays()}
        own = {name: np.concatenate(each) for name, each in columns.items() if all(part is not None for part in each)}
        return cls(**own, captured=capture.joined([part.captured for part in parts]))

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]], **own: Any) -> Self:
        """Return what `arrays` gave."""
        names = cls.own_arrays()
        own |= {name: arrays[name] for name in names if name in arrays}
        return cls(**own, captured={name: array for name, array in arrays.items() if name not in names})

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return every array by its name."""
        own = {name: getattr(self, name) for name in self.own_arrays()}
        return {name: array for name, array in own.items() if array is not None} | dict(self.captured)


@dataclass(frozen=True)
class ShardOutputs(StoredOutputs):
    """Of the runs of a shard. wall_time_s: of each run, in seconds, float64 [n]. cpu_time_s: the same of the processor;
    None of a notebook's models and where nobody trusted measured it.

    weights_sha256: of the file with the weights that are kept of the first runs, None if none are.
    """

    wall_time_s: Array = field(kw_only=True)
    cpu_time_s: Array | None = field(default=None, kw_only=True)
    weights_sha256: str | None = field(default=None, kw_only=True)

    def to_bytes(self) -> bytes:
        metadata = {WEIGHTS: self.weights_sha256} if self.weights_sha256 else None
        return save({name: np.ascontiguousarray(array) for name, array in self.arrays().items()}, metadata)

    @classmethod
    def from_bytes(cls, data: bytes) -> "ShardOutputs":
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        return cls.of_arrays(load(data), weights_sha256=header.get("__metadata__", {}).get(WEIGHTS))


def join(shards: list[ShardOutputs]) -> ShardOutputs:
    """Return the outputs of all runs, in order; each shard's weights are its own."""
    return ShardOutputs.joined(shards)


def model_outputs(path: Path) -> ModelOutputs:
    """Read the stored outputs of a set of retrained models."""
    arrays = load(path.read_bytes())
    return ModelOutputs(
        confidences=arrays["confidences"],
        retain_accuracy=arrays["retain_accuracy"],
        test_accuracy=arrays["test_accuracy"],
    )
