"""Prepared splits on this host's disk: where they were prepared, or fetched from remote storage."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from lethe.data.errors import DamagedSplit
from server.storage import Storage
from worker.split_storage.split_cache import SplitCache, StoredSplit


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
    """Return the split's folder after checking that it is the one the database means.

    Raises DamagedSplit if its manifest is gone or another: a split that was prepared again, or damaged.
    """
    if not context.storage.is_local:
        return context.cache.get(StoredSplit(context.storage, work.split_key), work.manifest_sha256)
    folder = context.storage.local_folder(work.split_key)
    try:
        found = hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
    except OSError as error:
        raise DamagedSplit(f"split {work.split_key} cannot be read: {error}") from error
    if found != work.manifest_sha256:
        raise DamagedSplit(f"split {work.split_key} has manifest {found}, the database expects {work.manifest_sha256}")
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
