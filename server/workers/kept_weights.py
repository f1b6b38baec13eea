"""The weights that a remote worker sends of a shard's first runs, checked before they are kept."""

from collections.abc import Mapping

from lethe.errors import HostFault, InvalidInput, NotFound, Violation
from lethe.runtime.weights_layout import ORIGINAL_MODEL, BadLayout, read_layout
from server.evaluations.claimed_shard import ClaimedShard
from server.evaluations.kept_weights import weights_key
from server.storage import Storage

HEADER_BYTES = 1 << 20

Tensors = Mapping[str, tuple[str, tuple[int, ...]]]


def n_kept(shard: ClaimedShard) -> int:
    """Return of how many of the shard's runs the weights are kept."""
    return max(0, min(shard.competition.keep_weights - shard.first_run, shard.n_runs))


def most_bytes(storage: Storage, shard: ClaimedShard) -> int:
    """Return how large their file can be."""
    return n_kept(shard) * len(_original(storage, shard)) + HEADER_BYTES


def keep(storage: Storage, shard: ClaimedShard, data: bytes) -> None:
    """Store weights of the form of the split's original model, one after another. Raises InvalidInput for others."""
    expected = {
        name: (dtype, (n_kept(shard), *shape)) for name, (dtype, shape) in _tensors(_original(storage, shard)).items()
    }
    try:
        found = _tensors(data)
    except BadLayout as error:
        raise _wrong(f"cannot be read: {error}") from error
    if found != expected:
        differ = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
        raise _wrong(f"{differ[0]} is {found.get(differ[0])} and must be {expected.get(differ[0])}")
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


def _wrong(found: str) -> InvalidInput:
    allowed = "holds the weights of the shard's first runs, stacked"
    return InvalidInput(f"The file {allowed}; this one does not: {found}", violations=(Violation("weights", allowed),))
