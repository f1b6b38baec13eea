"""The images of a set as float32 inputs on the device, batch by batch: from its own memory where they fit.

Else they stay on the host, perhaps in a file, and each batch is on its way while the one before it is computed with.
The inputs have the same bits either way.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

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
