"""The layout of a safetensors file: its header, and the tensors that the header names. Standard library only."""

import json
import struct
from dataclasses import dataclass
from math import prod
from typing import Any

ORIGINAL_MODEL = "original_model.safetensors"  # in a split's visible folder, the public sample and a run's data
HEADER_LENGTH = struct.Struct("<Q")
MAX_HEADER_BYTES = 16 * 1024 * 1024

DTYPE_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}


class BadLayout(ValueError):
    """A safetensors header that is not one; the message says where."""


@dataclass(frozen=True)
class TensorSlot:
    """One tensor's place in the data part: its name, type, shape and byte range."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class WeightsLayout:
    """What a frame must look like: the original model's header bytes and the tensors they name."""

    header: bytes  # the eight length bytes and the JSON
    tensors: tuple[TensorSlot, ...]  # in the order of their bytes

    @property
    def data_bytes(self) -> int:
        """Length of the data part."""
        return self.tensors[-1].end if self.tensors else 0

    @property
    def frame_bytes(self) -> int:
        """Length of the complete safetensors file."""
        return len(self.header) + self.data_bytes


def read_layout(content: bytes | memoryview) -> WeightsLayout:
    """Read the header at the start of a safetensors file. Raises BadLayout unless it is well-formed.

    The tensors must fill the data part without a gap or an overlap, as the format asks.
    """
    if len(content) < HEADER_LENGTH.size:
        raise BadLayout("shorter than the eight bytes of its header's length")
    (length,) = HEADER_LENGTH.unpack_from(content)
    if not 2 <= length <= min(MAX_HEADER_BYTES, len(content) - HEADER_LENGTH.size):
        raise BadLayout(f"a header of {length} bytes does not fit")
    header = bytes(content[: HEADER_LENGTH.size + length])
    try:
        entries = json.loads(header[HEADER_LENGTH.size :])
    except (ValueError, RecursionError) as error:
        raise BadLayout("the header is not JSON") from error
    if not isinstance(entries, dict):
        raise BadLayout("the header is not a JSON object")
    slots = [_slot(name, entry) for name, entry in entries.items() if name != "__metadata__"]
    slots.sort(key=lambda slot: (slot.begin, slot.end))
    position = 0
    for slot in slots:
        if slot.begin != position:
            raise BadLayout(f"tensor {slot.name!r} begins at byte {slot.begin}, not at {position}")
        position = slot.end
    return WeightsLayout(header=header, tensors=tuple(slots))


def _slot(name: str, entry: Any) -> TensorSlot:
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (TypeError, KeyError, ValueError) as error:
        raise BadLayout(f"tensor {name!r} lacks a dtype, a shape or two offsets") from error
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        raise BadLayout(f"tensor {name!r} has the dtype {dtype!r}; known are {', '.join(DTYPE_BYTES)}")
    numbers = [begin, end, *shape] if isinstance(shape, list) else [None]
    if not all(type(number) is int and 0 <= number < 2**48 for number in numbers):
        raise BadLayout(f"tensor {name!r} has a shape or an offset that is not a small whole number")
    if end - begin != prod(shape) * DTYPE_BYTES[dtype]:
        raise BadLayout(f"tensor {name!r} has {end - begin} bytes, which its shape and dtype do not give")
    return TensorSlot(name=name, dtype=dtype, shape=tuple(shape), begin=begin, end=end)
