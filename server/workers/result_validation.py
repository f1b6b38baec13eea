"""The outputs that a remote worker sends for its runs, checked before anything is kept of them."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from lethe.errors import HostFault, InvalidInput, NotFound, Violation
from lethe.evaluation.shard_outputs import ShardOutputs
from server.evaluations.claimed_shard import ClaimedShard
from server.storage import Storage

RETRAINED_OUTPUTS = "hidden/retrained/outputs.safetensors"
PER_MODEL_ARRAYS = ("confidences", "retain_accuracy", "test_accuracy", "class_accuracy")
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
MAX_CLASSES = 10_000
HEADER_BYTES = 64 << 10
RUN_COLUMNS = ("retain_accuracy", "test_accuracy", "wall_time_s")
CLASS_ACCURACY = "class_accuracy"


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
        if name not in (*PER_MODEL_ARRAYS, "__metadata__")
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
    header: dict[str, Any] = json.loads(data[8 : 8 + length])
    return header


def find_fault(name: str, array: np.ndarray) -> str:
    """Return what is wrong with the values of an array of runs, empty if nothing is."""
    if not np.isfinite(array).all():
        return f"{name} holds values that are not finite"
    if name.endswith("_loss") and array.size and array.min() < -ROUNDING:
        return f"{name} holds a loss below 0"
    if name == "confusion" and array.size and array.min() < 0:
        return f"{name} holds a count below 0"
    return ""


@dataclass(frozen=True)
class CheckedResult:
    """Outputs of the right form, and where they are kept."""

    data: bytes
    key: str
    sha256: str
    wall_time_s: float


def with_measured_times(data: bytes, measured_s: float) -> bytes:
    """Return an untrusted worker's outputs with the server's time, shared equally, and without weights."""
    outputs = ShardOutputs.from_bytes(data)
    times = np.full(len(outputs.wall_time_s), measured_s / len(outputs.wall_time_s))
    return replace(outputs, wall_time_s=times, weights_sha256=None).to_bytes()


def key_by_content(shard: ClaimedShard, data: bytes) -> tuple[str, str]:
    """Return where a shard's result lies, and its SHA-256, by which it is named so that nothing sent later can take
    its place."""
    sha256 = hashlib.sha256(data).hexdigest()
    stem, dot, suffix = shard.result_key.rpartition(".")
    return f"{stem}-{sha256[:16]}{dot}{suffix}", sha256


def max_bytes(shard: ClaimedShard, *, n_forget: int, captured: Forms) -> int:
    """Return how large the outputs of the shard's runs can be."""
    numbers = shard.n_runs * (n_forget + len(RUN_COLUMNS))
    beside = shard.n_runs * sum(form.n_bytes for form in captured.values())
    return 8 * numbers + beside + 4 * shard.n_runs * 2 * MAX_CLASSES + HEADER_BYTES


def check(
    data: bytes, shard: ClaimedShard, *, n_forget: int, captured: Forms, measured_s: float | None = None
) -> CheckedResult:
    """Return the outputs if the shard's runs can have given them (measured_s: in that time). Raises InvalidInput."""
    try:
        arrays = load(data)
    except (SafetensorError, KeyError, ValueError) as error:
        raise _wrong("is a safetensors file of the runs' outputs", f"cannot be read: {error}") from error
    expected = {"confidences": (shard.n_runs, n_forget)} | dict.fromkeys(RUN_COLUMNS, (shard.n_runs,))
    shapes = {name: array.shape for name, array in arrays.items() if name != CLASS_ACCURACY}
    with_captured = expected | {name: (shard.n_runs, *form.shape) for name, form in captured.items()}
    if shapes != with_captured:
        raise _wrong(f"holds arrays of the shapes {with_captured}", f"has {shapes}")
    if any(arrays[name].dtype != np.float64 for name in expected):
        raise _wrong("holds float64 numbers", f"has {sorted({str(arrays[name].dtype) for name in expected})}")
    if not all(np.isfinite(arrays[name]).all() for name in expected):
        raise _wrong("holds finite numbers", "has others")
    if any(not _within_one(arrays[name]) for name in ("retain_accuracy", "test_accuracy")):
        raise _wrong("holds accuracies from 0 to 1", "has others")
    if (arrays["wall_time_s"] < 0).any():
        raise _wrong("holds times of 0 s and more", "has a negative one")
    _check_classes(arrays.get(CLASS_ACCURACY), n_runs=shard.n_runs)
    for name, form in captured.items():
        _check_captured(name, arrays[name], form)
    if measured_s is not None:
        data = with_measured_times(data, measured_s)
    told_s = float(arrays["wall_time_s"].sum())
    return CheckedResult(data, *key_by_content(shard, data), told_s if measured_s is None else measured_s)


def _check_captured(name: str, array: np.ndarray, form: ArrayForm) -> None:
    if array.dtype != form.dtype:
        raise _wrong(f"holds {name} as {form.dtype}", f"has it as {array.dtype}")
    fault = find_fault(name, array)
    if fault:
        raise _wrong("holds finite outputs, losses and counts of 0 and more", f"does not: {fault}")


def _check_classes(array: np.ndarray | None, *, n_runs: int) -> None:
    if array is None:
        return
    if array.dtype != np.float32 or array.ndim != 3 or array.shape[:2] != (n_runs, 2):
        raise _wrong(f"holds {CLASS_ACCURACY} as float32 of shape ({n_runs}, 2, classes)", f"has {array.shape}")
    given = array[~np.isnan(array)]  # a class that a set has no image of has no accuracy
    if array.shape[2] > MAX_CLASSES or not _within_one(given):
        raise _wrong(f"holds {CLASS_ACCURACY} from 0 to 1 of at most {MAX_CLASSES} classes", "has others")


def _within_one(array: np.ndarray) -> bool:
    return bool(((array >= 0.0) & (array <= 1.0)).all())


def _wrong(allowed: str, problem: str) -> InvalidInput:
    return InvalidInput(f"The result {allowed}; this one {problem}", violations=(Violation("result", allowed),))
