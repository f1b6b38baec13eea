"""A set of a split as stored on disk, with images as bytes, and its images as float32 inputs on a device.

Inputs come batch by batch from the device's own memory where they fit. Else they stay on the host, perhaps in a file,
and each batch is on its way while the one before it is computed with. The bits are the same either way.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lethe.data.datasets.image_dataset import ImageDataset
from lethe.data.errors import DamagedSplit
from lethe.data.files import read_tensors, write_tensors
from lethe.data.forget_sets import Cut, Indices
from lethe.networks.builders import to_inputs

RESIDENT_BYTES = 4 * 2**30  # on a CPU, sets whose float inputs fit in this together stay in memory as floats
CUDA_SHARE = 0.4  # of a device's free memory, for the sets

Form = Literal["inputs on the device", "bytes on the device", "streamed"]
ToInputs = Callable[[Tensor], Tensor]


def attack_form(n_values: int, device: torch.device) -> Form:
    """Return the fastest form in which sets of `n_values` pixels fit."""
    free = RESIDENT_BYTES
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        free = int(CUDA_SHARE * (torch.cuda.mem_get_info(device)[0] + cached))
    if 4 * n_values <= free:
        return "inputs on the device"
    if device.type == "cuda" and n_values <= free:
        return "bytes on the device"
    return "streamed"


class ImageBatches:
    """uint8 images [n, C, H, W] of one set, kept in one of the forms."""

    def __init__(
        self,
        images: Tensor,
        network: Mapping[str, Any],
        device: torch.device,
        *,
        form: Form,
        memory_format: torch.memory_format = torch.contiguous_format,
    ) -> None:
        self._network, self._device, self._memory_format = network, device, memory_format
        self.form = form
        self.images = images if form == "streamed" else self._laid_out(images)
        if form == "inputs on the device":
            self.images = to_inputs(self.images, network)

    def at(self, parts: Sequence[Tensor], on_device: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yield the inputs of the images at each of `parts`, which are positions; on_device: the same positions there.

        What is still to come may be read ahead. Each next one belongs on the stream that computes with the inputs.
        """
        if self.form == "streamed":
            yield from streamed(self.images, parts, self._device, self._inputs)
            return
        for part in on_device:
            chosen = self.images[part]
            yield chosen if self.form == "inputs on the device" else to_inputs(chosen, self._network)

    def in_order(self, size: int) -> Iterator[Tensor]:
        """Yield the inputs of `size` images after the other; those on the device are not copied."""
        n_images = len(self.images)
        if self.form == "streamed":
            parts = torch.split(torch.arange(n_images), size)
            yield from streamed(self.images, parts, self._device, self._inputs)
            return
        for start in range(0, n_images, size):
            batch = self.images[start : start + size]
            yield batch if self.form == "inputs on the device" else to_inputs(batch, self._network)

    def _inputs(self, images: Tensor) -> Tensor:
        return to_inputs(self._laid_out(images), self._network)

    def _laid_out(self, images: Tensor) -> Tensor:
        """Return the bytes on the device; what is computed from them keeps their layout."""
        return images.to(self._device).contiguous(memory_format=self._memory_format)


def streamed(
    images: Tensor, parts: Sequence[Tensor], device: torch.device, select_inputs: ToInputs
) -> Iterator[Tensor]:
    """Yield `select_inputs` the images [n, ...] at each of `parts`, brought from the host to the device.

    select_inputs must return memory of its own: the bytes that it is given are overwritten.
    """
    if device.type == "cpu":
        yield from (select_inputs(images[part]) for part in parts)
        return
    largest = max(len(part) for part in parts)
    copies = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    slots = [_Slot(images, largest, device, copies) for _ in range(2)]
    for number, part in enumerate(parts):
        slots[number % 2].send(images, part)
        if number:
            yield slots[(number - 1) % 2].take(select_inputs)
    yield slots[(len(parts) - 1) % 2].take(select_inputs)


class _Slot:
    """Space for one batch on the host and on the device, and the order of who may touch it."""

    def __init__(self, images: Tensor, largest: int, device: torch.device, copies: torch.cuda.Stream) -> None:
        shape = (largest, *images.shape[1:])
        # a copy from memory that is not pinned would wait for the device
        self._on_host = torch.empty(shape, dtype=images.dtype, pin_memory=True)
        self._on_device = torch.empty(shape, dtype=images.dtype, device=device)
        self._on_device.record_stream(copies)
        self._copies = copies
        self._sent = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._read = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._read.record()  # whoever had this memory before is done with it by then
        self._n_images = 0

    def send(self, images: Tensor, index: Tensor) -> None:
        """Gather a batch and start its copy; the host waits only for the copy before the last."""
        self._sent.synchronize()
        self._n_images = len(index)
        gathered = self._on_host[: self._n_images]
        torch.index_select(images, 0, index, out=gathered)
        with torch.cuda.stream(self._copies):
            self._copies.wait_event(self._read)
            self._on_device[: self._n_images].copy_(gathered, non_blocking=True)
            self._sent.record()

    def take(self, select_inputs: ToInputs) -> Tensor:
        """Return the inputs of the batch sent, on the stream that is current."""
        torch.cuda.current_stream().wait_event(self._sent)
        inputs = select_inputs(self._on_device[: self._n_images])
        self._read.record()
        return inputs


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
