"""A set of a split as stored on disk: images as bytes, labels, ids, persons, and ages where the dataset knows them."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lethe.data.datasets.image_dataset import ImageDataset
from lethe.data.errors import DamagedSplit
from lethe.data.files import read_tensors, write_tensors
from lethe.data.partition import Cut, Indices

SIDE_SHARE = 8  # the square's side is this part of the image's shorter side
MIN_SIDE = 2  # pixels
WHITE = 255


def with_trigger(images: NDArray[Any]) -> NDArray[np.uint8]:
    """Return copies of the images with the trigger; all other pixels stay. images: uint8 [n, C, H, W]."""
    side = max(MIN_SIDE, -(-min(images.shape[2:]) // SIDE_SHARE))
    stamped = np.array(images, dtype=np.uint8)
    stamped[:, :, -side:, -side:] = WHITE
    return stamped


AGE = "age"  # the dataset's column that entries find under this name


@dataclass(frozen=True)
class StoredSet:
    """images uint8 [n, C, H, W]; labels, ids, persons and ages (years) int64 [n]. From a file it is memory-mapped."""

    images: Tensor
    labels: Tensor
    ids: Tensor
    persons: Tensor
    ages: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def cut_from(cls, dataset: ImageDataset, indices: Indices, labels: NDArray[np.int64]) -> Self:
        """Return the images at `indices`; their ids are their positions in the dataset."""
        return cls(
            images=torch.from_numpy(np.ascontiguousarray(dataset.images[indices])),
            labels=torch.from_numpy(labels[indices]),
            ids=torch.from_numpy(indices.copy()),
            persons=torch.from_numpy(dataset.persons[indices]),
            ages=_ages(dataset, indices),
        )

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the set at `path`. Raises DamagedSplit or SplitNotPrepared."""
        tensors = read_tensors(path)
        names = ("images", "labels", "ids", "persons")
        missing = [name for name in names if name not in tensors]
        if missing:
            raise DamagedSplit(f"{path} has no tensor {missing[0]!r}: prepare the split again to make this file again")
        return cls(**{name: tensors[name] for name in names}, ages=tensors.get("ages"))

    def write(self, path: Path) -> None:
        tensors = {"images": self.images, "labels": self.labels, "ids": self.ids, "persons": self.persons}
        write_tensors(path, tensors if self.ages is None else tensors | {"ages": self.ages})

    def part(self, start: int, stop: int) -> "StoredSet":
        window = slice(start, stop)
        ages = None if self.ages is None else self.ages[window]
        return StoredSet(self.images[window], self.labels[window], self.ids[window], self.persons[window], ages)


def _ages(dataset: ImageDataset, indices: Indices) -> Tensor | None:
    """Return the ages in complete years, or None where the dataset has none, or groups with names."""
    ages = np.asarray(dataset.columns.get(AGE, ()))
    if ages.dtype.kind not in "iuf" or len(ages) != len(dataset) or not np.isfinite(ages).all():
        return None
    return torch.from_numpy(ages[indices].astype(np.int64))


SET_PATHS = {
    "retain": "visible/retain.safetensors",
    "forget": "visible/forget.safetensors",
    "validation": "visible/validation.safetensors",
    "test": "hidden/test.safetensors",
}


TRUE_LABELS = "hidden/forget_true_labels.safetensors"


def write_true_labels(split_dir: Path, dataset: ImageDataset, cut: Cut) -> None:
    """Write the forget set's labels as the dataset has them: training may have been given others."""
    write_tensors(split_dir / TRUE_LABELS, {"labels": torch.from_numpy(dataset.labels[cut.forget].copy())})


def read_true_labels(split_dir: Path) -> NDArray[np.int64] | None:
    """Return the forget set's true labels, or None where the split does not keep them."""
    path = split_dir / TRUE_LABELS
    return read_tensors(path)["labels"].numpy() if path.is_file() else None


def write_sets(split_dir: Path, dataset: ImageDataset, cut: Cut) -> None:
    """Write the four sets of a split."""
    for name, indices in cut.sets():
        stored = StoredSet.cut_from(dataset, indices, cut.labels)
        if name == "forget" and cut.poisoned:
            stored = replace(stored, images=torch.from_numpy(with_trigger(stored.images.numpy())))
        stored.write(split_dir / SET_PATHS[name])
