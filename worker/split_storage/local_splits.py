"""A shard's files and splits on this host's disk: where they were prepared, or fetched from remote storage."""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import structlog

from lethe.data.errors import DamagedSplit
from server.competitions import stalled_preparations
from server.db import Database
from server.evaluations.claimed_shard import ClaimedShard
from server.models.evaluation import Evaluation
from server.storage import Storage, content_key
from worker.split_storage.split_cache import SplitCache, StoredSplit

log = structlog.get_logger()


class NamesSplit(Protocol):
    """Anything that says which split it is about."""

    @property
    def split_key(self) -> str: ...
    @property
    def manifest_sha256(self) -> str: ...


class HasStorage(Protocol):
    @property
    def storage(self) -> Storage: ...
    @property
    def cache(self) -> SplitCache: ...


def local_split(context: HasStorage, work: NamesSplit) -> Path:
    """Return the split's folder. Raises DamagedSplit if its manifest is gone or not the database's."""
    if not context.storage.is_local:
        return context.cache.get(StoredSplit(context.storage, work.split_key), work.manifest_sha256)
    folder = context.storage.local_folder(work.split_key)
    try:
        digest = hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
    except OSError as error:
        raise DamagedSplit(f"split {work.split_key} cannot be read: {error}") from error
    if digest != work.manifest_sha256:
        raise DamagedSplit(f"split {work.split_key} has manifest {digest}, the database expects {work.manifest_sha256}")
    return folder


def local_file(context: HasStorage, work: NamesSplit, name: str) -> Path:
    """Return a file of the split that workers rarely need: `local_split` leaves it in remote storage."""
    if context.storage.is_local:
        return context.storage.local_folder(work.split_key) / name
    return context.cache.get_file(StoredSplit(context.storage, work.split_key), work.manifest_sha256, name)


def workplace(storage: Storage, key: str, *, scratch: Path) -> Path:
    """Return the folder in which the split under `key` is prepared: in local storage its own place, else on this
    host's scratch, where a preparation that was broken off goes on."""
    return storage.local_folder(key) if storage.is_local else scratch / "prepare" / key


def publish_files(storage: Storage, key: str, folder: Path, names: Iterable[str]) -> None:
    """Put these files of a split in the making into remote storage. Nobody reads them before its manifest is there."""
    if not storage.is_local:
        for name in sorted(names):
            storage.upload(folder / name, f"{key}/{name}")


def publish_manifest(storage: Storage, key: str, folder: Path) -> None:
    """Put the manifest into remote storage: a reader sees the old split or the new one whole."""
    if not storage.is_local:
        storage.upload(folder / "manifest.json", f"{key}/manifest.json")


class HasDatabase(Protocol):
    @property
    def database(self) -> Database: ...


@contextmanager
def repair_if_damaged(context: HasDatabase, evaluation_id: str) -> Iterator[None]:
    """Queue a check of the evaluation's split, which repairs it, if the block raises DamagedSplit."""
    try:
        yield
    except DamagedSplit as error:
        with context.database.write() as session:
            split_id = session.get_one(Evaluation, evaluation_id).split_id
            queued = stalled_preparations.check_again(session, split_id, reason=error.detail)
        log.error("a file of the split is damaged", split=split_id, check_queued=queued, reason=error.detail)  # noqa: TRY400
        raise


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
