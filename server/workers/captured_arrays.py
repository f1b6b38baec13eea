"""The arrays beside the confidences that a split's models store, and the form that a run's must have.

The split's own retrained models say it: their outputs hold the same arrays, with models in the place of runs.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from lethe.errors import HostFault, NotFound
from server.evaluations.claimed_shard import ClaimedShard
from server.storage import Storage

RETRAINED_OUTPUTS = "hidden/retrained/outputs.safetensors"
OF_EVERY_MODEL = ("confidences", "retain_accuracy", "test_accuracy", "class_accuracy")
DTYPES = {
    "BOOL": np.bool_,
    "F16": np.float16,
    "F32": np.float32,
    "F64": np.float64,
    "I32": np.int32,
    "U8": np.uint8,  # generated answers
}
MAX_HEADER_BYTES = 1 << 20
ROUNDING = 1e-3  # a loss of nothing may come out as a little less than 0


@dataclass(frozen=True)
class ArrayForm:
    """Type and shape of one model's array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        return self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))


Forms = Mapping[str, ArrayForm]


def captured_forms(storage: Storage, shard: ClaimedShard) -> Forms:
    """Return the arrays that a run of the shard's split stores beyond its confidences. Raises HostFault."""
    return _forms(storage, shard.split_key, shard.manifest_sha256)


@lru_cache(maxsize=32)
def _forms(storage: Storage, key: str, manifest_sha256: str) -> Forms:
    try:
        manifest = json.loads(storage.read_verified(f"{key}/manifest.json", manifest_sha256))
        if not manifest.get("evaluation", {}).get("capture"):
            return {}
        header = _header(storage, f"{key}/{RETRAINED_OUTPUTS}")
    except NotFound as error:
        raise HostFault(f"the split {key} is not in the storage") from error
    return {
        name: ArrayForm(np.dtype(DTYPES[array["dtype"]]), tuple(array["shape"][1:]))
        for name, array in header.items()
        if name not in (*OF_EVERY_MODEL, "__metadata__")
    }


def _header(storage: Storage, key: str) -> dict[str, Any]:
    """Return the header of a safetensors file, reading no more of it than its first pieces."""
    data, length = b"", 0
    for piece in storage.chunks(key):
        data += piece
        length = int.from_bytes(data[:8], "little")
        if len(data) >= 8 and (length > MAX_HEADER_BYTES or len(data) >= 8 + length):
            break
    if not 0 < length <= min(MAX_HEADER_BYTES, len(data) - 8):
        raise HostFault(f"{key} is damaged: prepare the split again")
    found: dict[str, Any] = json.loads(data[8 : 8 + length])
    return found


def find_fault(name: str, array: np.ndarray) -> str:
    """Return what is wrong with the values of a run's array, empty if nothing is.

    array: runs along its first axis.
    """
    if not np.isfinite(array).all():
        return f"{name} holds values that are not finite"
    if name.endswith("_loss") and array.size and array.min() < -ROUNDING:
        return f"{name} holds a loss below 0"
    if name == "confusion" and array.size and array.min() < 0:
        return f"{name} holds a count below 0"
    return ""
