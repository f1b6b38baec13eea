"""Outputs of models as arrays, by capture level, and as files: of a run, of a set of models, of a shard's runs."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save
from scipy.special import logsumexp

from lethe.metrics.core.array_catalogue import CaptureLevel
from lethe.metrics.scoring.arrays import ModelOutputs

Logits = NDArray[np.float32]
Labels = NDArray[np.int64]
SUBSET_SEED = 0


@dataclass(frozen=True)
class CapturedSets:
    """Logits [n, classes] and labels [n] of the three sets; true_forget_labels where the given ones were changed."""

    forget: Logits
    retain: Logits
    test: Logits
    forget_labels: Labels
    retain_labels: Labels
    test_labels: Labels
    true_forget_labels: Labels


def capture(levels: Collection[int], sets: CapturedSets) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of one model, by the names of the array catalogue. Retain arrays are of `retain_subset`."""
    arrays: dict[str, NDArray[np.generic]] = {}
    if not levels:
        return arrays
    kept = retain_subset(len(sets.retain), n_forget=len(sets.forget), n_test=len(sets.test))
    retain, retain_labels = sets.retain[kept], sets.retain_labels[kept]
    if CaptureLevel.LOSSES in levels:
        arrays["forget_correct"] = sets.forget.argmax(axis=1) == sets.forget_labels
        arrays["forget_loss"] = cross_entropy(sets.forget, sets.forget_labels)
        arrays["test_loss"] = cross_entropy(sets.test, sets.test_labels)
        arrays["retain_loss"] = cross_entropy(retain, retain_labels)
    if CaptureLevel.LOGITS in levels:
        stored = {"forget_logits": sets.forget, "test_logits": sets.test, "retain_logits": retain}
        arrays |= {name: half_precision(logits) for name, logits in stored.items()}
    if CaptureLevel.CONFUSION in levels:
        arrays["confusion"] = np.stack(
            [
                confusion(sets.forget, sets.forget_labels),
                confusion(sets.forget, sets.true_forget_labels),
                confusion(sets.test, sets.test_labels),
            ]
        )
    return arrays


def stacked(models: Collection[Mapping[str, NDArray[np.generic]]]) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of many models, each with the models along its first axis; only those that all have."""
    if not models:
        return {}
    names = set.intersection(*(set(arrays) for arrays in models))
    return {name: np.stack([arrays[name] for arrays in models]) for name in sorted(names)}


def joined(parts: Collection[Mapping[str, NDArray[np.generic]]]) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of all models of several parts, in order; only those that every part has."""
    if not parts:
        return {}
    names = set.intersection(*(set(arrays) for arrays in parts))
    return {name: np.concatenate([arrays[name] for arrays in parts]) for name in sorted(names)}


def retain_subset(n_retain: int, *, n_forget: int, n_test: int) -> NDArray[np.int64]:
    """Return the positions of the retain examples whose arrays are stored: the same for all models of a split.

    As many as the larger of forget and test set, of a fixed permutation, ascending.
    """
    order = np.random.RandomState(SUBSET_SEED).permutation(n_retain)  # the one generator that numpy never changes
    return np.sort(order[: max(n_forget, n_test)]).astype(np.int64)


def cross_entropy(logits: Logits, labels: Labels) -> NDArray[np.float32]:
    """Return the loss of each example in nats, computed in float64."""
    wide = logits.astype(np.float64)
    losses = logsumexp(wide, axis=1) - wide[np.arange(len(labels)), labels]
    return np.asarray(losses, dtype=np.float32)


def half_precision(logits: Logits) -> NDArray[np.float16]:
    """Return logits as float16; what lies beyond its range becomes its largest number."""
    largest = float(np.finfo(np.float16).max)
    return np.clip(logits, -largest, largest).astype(np.float16)


def confusion(logits: Logits, labels: Labels) -> NDArray[np.int32]:
    """Return counts [label, predicted class]."""
    n_classes = logits.shape[1]
    cells = labels * n_classes + logits.argmax(axis=1)
    return np.bincount(cells, minlength=n_classes**2).reshape(n_classes, n_classes).astype(np.int32)


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
            captured=stacked([run.captured for run in runs]),
            **own,
        )

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the outputs of all models, in order. A part may be older than an array, which then none has."""
        columns = {name: [getattr(part, name) for part in parts] for name in cls.own_arrays()}
        own = {name: np.concatenate(each) for name, each in columns.items() if all(part is not None for part in each)}
        return cls(**own, captured=joined([part.captured for part in parts]))

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
