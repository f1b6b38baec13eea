"""The files that a shard needs, by content: the submission, and of its split what unlearning and inference read.

What only scoring compares with (retrained models, their outputs, the oracle's) never leaves the instance, nor does
the recipe in the manifest: the seed of the splits would let its holder train the very same models.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from lethe.errors import HostFault, InvalidInput, NotFound, Violation
from lethe.runtime.weights_layout import ORIGINAL_MODEL, BadLayout, read_layout
from server.evaluations.claimed_shard import ClaimedShard
from server.evaluations.results import weights_key
from server.storage import Storage, content_key

SCORERS_ALONE = (
    "hidden/retrained/",
    "hidden/oracle/",
    "hidden/original/",
    "hidden/originals/outputs",
    "hidden/random/",
    "hidden/probes",
)
MANIFEST_KEYS = (
    "format",
    "competition",
    "visibility",
    "setup",
    "n_models",
    "versions",
    "retraining_time_s",
    "evaluation",
)
ORIGINALS = "originals-"  # the steps that say which file holds which original model
PLACES = ("first_model", "n_models")
HEADER_BYTES = 1 << 20

Tensors = Mapping[str, tuple[str, tuple[int, ...]]]


@dataclass(frozen=True)
class WorkersSplit:
    """A split as remote workers see it: its own manifest, and the storage keys of its files by SHA-256."""

    manifest: bytes
    keys: dict[str, str]

    @property
    def manifest_sha256(self) -> str:
        return hashlib.sha256(self.manifest).hexdigest()


def workers_split(storage: Storage, shard: ClaimedShard) -> WorkersSplit:
    """Return the split of a shard as a remote worker may see it. Raises HostFault."""
    return _workers_split(storage, shard.split_key, shard.manifest_sha256)


@lru_cache(maxsize=32)
def _workers_split(storage: Storage, key: str, manifest_sha256: str) -> WorkersSplit:
    try:
        whole = json.loads(storage.read_verified(f"{key}/manifest.json", manifest_sha256))
    except NotFound as error:
        raise HostFault(f"the split {key} is not in the storage") from error
    manifest = _for_workers(whole)
    keys = {record["sha256"]: f"{key}/{name}" for name, record in manifest["files"].items()}
    return WorkersSplit(json.dumps(manifest, sort_keys=True).encode(), keys)


def stored_key(storage: Storage, shard: ClaimedShard, sha256: str) -> str:
    """Return where in storage a file of the shard lies. Raises NotFound for what does not belong to it."""
    if sha256 == shard.content_sha256:
        return content_key(sha256)
    key = workers_split(storage, shard).keys.get(sha256)
    if key is None:
        raise NotFound(f"No file of shard {shard.shard_id} has the SHA-256 {sha256}")
    return key


def _for_workers(manifest: dict[str, Any]) -> dict[str, Any]:
    files = {name: record for name, record in manifest["files"].items() if not name.startswith(SCORERS_ALONE)}
    steps = {
        name: {"files": step["files"], "values": {place: step["values"][place] for place in PLACES}}
        for name, step in manifest.get("steps", {}).items()
        if name.startswith(ORIGINALS) and all(place in step.get("values", {}) for place in PLACES)
    }
    emptied: dict[str, Any] = {"fingerprint": "", "recipe": {}, "seeds": {}, "quality": {}}
    return (
        {name: manifest[name] for name in MANIFEST_KEYS if name in manifest}
        | emptied
        | {"files": files, "steps": steps}
    )


def n_kept(shard: ClaimedShard) -> int:
    """Return of how many of the shard's runs the weights are kept."""
    return max(0, min(shard.competition.keep_weights - shard.first_run, shard.n_runs))


def max_bytes(storage: Storage, shard: ClaimedShard) -> int:
    """Return how large their file can be."""
    return n_kept(shard) * len(_original(storage, shard)) + HEADER_BYTES


def keep(storage: Storage, shard: ClaimedShard, data: bytes) -> None:
    """Store weights of the form of the split's original model, one after another. Raises InvalidInput for others."""
    expected = {
        name: (dtype, (n_kept(shard), *shape)) for name, (dtype, shape) in _tensors(_original(storage, shard)).items()
    }
    try:
        tensors = _tensors(data)
    except BadLayout as error:
        raise _wrong(f"cannot be read: {error}") from error
    if tensors != expected:
        differ = sorted(name for name in {*tensors, *expected} if tensors.get(name) != expected.get(name))
        raise _wrong(f"{differ[0]} is {tensors.get(differ[0])} and must be {expected.get(differ[0])}")
    storage.write(weights_key(shard.result_key), data)


def _tensors(data: bytes) -> Tensors:
    layout = read_layout(data)
    if len(data) != layout.frame_bytes:
        raise BadLayout(f"{len(data)} bytes, of which the header names {layout.frame_bytes}")
    return {slot.name: (slot.dtype, slot.shape) for slot in layout.tensors}


def _original(storage: Storage, shard: ClaimedShard) -> bytes:
    try:
        return storage.read(f"{shard.split_key}/visible/{ORIGINAL_MODEL}")
    except NotFound as error:
        raise HostFault(f"the split {shard.split_key} is not in the storage") from error


def _wrong(problem: str) -> InvalidInput:
    allowed = "holds the weights of the shard's first runs, stacked"
    return InvalidInput(
        f"The file {allowed}; this one does not: {problem}", violations=(Violation("weights", allowed),)
    )
