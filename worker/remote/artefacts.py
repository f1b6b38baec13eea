"""A shard's files fetched from the server by their SHA-256; splits are kept in this host's cache."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from lethe.errors import HostFault
from server.evaluations.claimed_shard import ClaimedShard
from worker.remote.client import WorkerApi
from worker.split_storage.split_cache import SplitCache


@dataclass(frozen=True)
class ServedSplit:
    """The split of a shard that this worker holds."""

    api: WorkerApi
    shard: ClaimedShard

    @property
    def label(self) -> str:
        return self.shard.split_key

    def manifest(self, sha256: str) -> bytes:
        return _verified(self.api, self.shard, sha256, what=f"manifest of {self.label}")

    def download(self, name: str, sha256: str, path: Path) -> None:
        self.api.download(self.shard, sha256, path)


@dataclass(frozen=True)
class ServedArtefacts:
    """Files from a server that this worker can only call."""

    api: WorkerApi
    cache: SplitCache

    def package(self, shard: ClaimedShard) -> bytes:
        return _verified(self.api, shard, shard.content_sha256, what=f"submission {shard.submission_id}")

    def split(self, shard: ClaimedShard) -> Path:
        return self.cache.get(ServedSplit(self.api, shard), shard.manifest_sha256)

    def split_file(self, shard: ClaimedShard, name: str) -> Path:
        return self.cache.get_file(ServedSplit(self.api, shard), shard.manifest_sha256, name)

    def repair_split(self, shard: ClaimedShard) -> list[str]:
        return self.cache.repair(ServedSplit(self.api, shard), shard.manifest_sha256)


def _verified(api: WorkerApi, shard: ClaimedShard, sha256: str, *, what: str) -> bytes:
    data = api.file(shard, sha256)
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise HostFault(f"the server gave a damaged {what}: SHA-256 {found}, expected {sha256}")
    return data
