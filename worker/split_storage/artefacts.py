"""Where a worker has a shard's files from: the instance's storage, or a server that it can only call."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from server.evaluations.claimed_shard import ClaimedShard
from server.storage import Storage, content_key
from worker.split_storage.local_splits import local_file, local_split
from worker.split_storage.split_cache import SplitCache, StoredSplit


class Artefacts(Protocol):
    """A shard's files, each compared with its SHA-256. All raise HostFault where one cannot be had."""

    def package(self, shard: ClaimedShard) -> bytes:
        """Return the submission as it was received."""
        ...

    def split(self, shard: ClaimedShard) -> Path:
        """Return the folder of the shard's split on this host."""
        ...

    def split_file(self, shard: ClaimedShard, name: str) -> Path:
        """Return a file of the split that workers rarely need."""
        ...

    def repair_split(self, shard: ClaimedShard) -> list[str]:
        """Fetch again what is damaged of this host's copy of the split. Return its names."""
        ...


@dataclass(frozen=True)
class StoredArtefacts:
    """Files from the storage that this worker reaches."""

    storage: Storage
    cache: SplitCache

    def package(self, shard: ClaimedShard) -> bytes:
        return self.storage.read_verified(content_key(shard.content_sha256), shard.content_sha256)

    def split(self, shard: ClaimedShard) -> Path:
        return local_split(self, shard)

    def split_file(self, shard: ClaimedShard, name: str) -> Path:
        return local_file(self, shard, name)

    def repair_split(self, shard: ClaimedShard) -> list[str]:
        if self.storage.is_local:  # there is no other copy
            return []
        return self.cache.repair(StoredSplit(self.storage, shard.split_key), shard.manifest_sha256)
