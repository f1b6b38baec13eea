"""Prepared splits from remote storage on this host's disk: each file checked by its hash, all below a size limit.

Entries are named by the hash of their manifest and appear whole or not at all. What is damaged on this disk is fetched
again: every process looks at an entry before its first use, and when a file turns out damaged. A process holds a shared
lock on the entries that it works with, so that another does not remove them under its sandboxes.
"""

import fcntl
import hashlib
import json
import os
import secrets
import shutil
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

import structlog

from lethe.data.errors import DamagedSplit
from lethe.errors import HostFault
from server.storage import Storage
from worker.host.stage_folder import is_abandoned

log = structlog.get_logger()
MAX_HELD = 4  # entries that one process may work with: its warm sandboxes and loaded splits
# Checkpoints: of retrained models and of the oracle only the outputs are compared with. Original models are fetched
# by the file.
NOT_FETCHED = ("hidden/retrained/models-", "hidden/originals/", "hidden/oracle/models-")


class SplitSource(Protocol):
    """Where a split is fetched from. `label` names it in messages and logs."""

    @property
    def label(self) -> str: ...

    def manifest(self, sha256: str) -> bytes:
        """Return the manifest with that hash. Raises HostFault."""
        ...

    def download(self, name: str, sha256: str, path: Path) -> None:
        """Write a file of the split to this host's disk. Raises HostFault."""
        ...


@dataclass(frozen=True)
class StoredSplit:
    """A split under a key of the storage."""

    storage: Storage
    label: str

    def manifest(self, sha256: str) -> bytes:
        return self.storage.read_verified(f"{self.label}/manifest.json", sha256)

    def download(self, name: str, sha256: str, path: Path) -> None:
        self.storage.download(f"{self.label}/{name}", path)


@dataclass
class SplitCache:
    """The splits of one host. Any number of processes share its folder."""

    folder: Path
    cap_bytes: int
    _held: OrderedDict[str, IO[bytes]] = field(default_factory=OrderedDict)
    _checked: set[str] = field(default_factory=set)

    def get(self, source: SplitSource, manifest_sha256: str) -> Path:
        """Return the folder of the split with that manifest, fetched if needed. Raises HostFault for a wrong one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        entry = self.folder / manifest_sha256
        self._hold(manifest_sha256)
        if not entry.is_dir():
            self._fetch(source, manifest_sha256, entry)
        elif manifest_sha256 not in self._checked:
            self.repair(source, manifest_sha256)
        self._checked.add(manifest_sha256)
        os.utime(entry)
        self._shrink()
        return entry

    def get_file(self, source: SplitSource, manifest_sha256: str, name: str) -> Path:
        """Return a file of the split that `get` does not fetch, fetching it if needed. Raises HostFault."""
        entry = self.get(source, manifest_sha256)
        path = entry / name
        if not path.is_file():
            record = json.loads((entry / "manifest.json").read_bytes())["files"][name]
            self._replace(source, entry, name, record)
            self._shrink()
        return path

    def repair(self, source: SplitSource, manifest_sha256: str) -> list[str]:
        """Fetch again what is damaged or gone of an entry on this disk. Return its names. Raises HostFault."""
        entry = self.folder / manifest_sha256
        manifest = source.manifest(manifest_sha256)
        wanted = _wanted(manifest, label=source.label)
        fetched_later = {
            name: record for name, record in json.loads(manifest)["files"].items() if (entry / name).is_file()
        }
        damaged = [name for name, record in (wanted | fetched_later).items() if not _is_whole(entry / name, record)]
        for name in damaged:
            log.warning("damaged on this disk, fetched again", split=source.label, file=name)
            self._replace(source, entry, name, (wanted | fetched_later)[name])
        if (entry / "manifest.json").read_bytes() != manifest:
            damaged.append("manifest.json")
            with self._replacing(entry / "manifest.json", label=source.label) as fresh:
                fresh.write_bytes(manifest)
        return damaged

    def _replace(self, source: SplitSource, entry: Path, name: str, record: dict[str, Any]) -> None:
        with self._replacing(entry / name, label=f"{source.label}/{name}") as fresh:
            source.download(name, record["sha256"], fresh)
            _check(fresh, record, label=f"{source.label}/{name}")

    @contextmanager
    def _replacing(self, path: Path, *, label: str) -> Iterator[Path]:
        """Yield the name of a file that takes the place of `path` once it is written and on the disk."""
        fresh = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
        with self._disk_takes(label):
            try:
                fresh.parent.mkdir(parents=True, exist_ok=True)
                yield fresh
                _sync(fresh)
                fresh.replace(path)
                _sync(path.parent)
            finally:
                fresh.unlink(missing_ok=True)

    @contextmanager
    def _disk_takes(self, label: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise HostFault(f"the cache in {self.folder} did not take {label}: {error}") from error

    def close(self) -> None:
        """Release this process's entries, so that others may remove them."""
        while self._held:
            self._held.popitem()[1].close()

    def _hold(self, name: str) -> None:
        if name not in self._held:
            lock = (self.folder / f"{name}.lock").open("ab")
            fcntl.flock(lock, fcntl.LOCK_SH)
            self._held[name] = lock
        self._held.move_to_end(name)
        while len(self._held) > MAX_HELD:
            self._held.popitem(last=False)[1].close()

    def _fetch(self, source: SplitSource, manifest_sha256: str, entry: Path) -> None:
        manifest = source.manifest(manifest_sha256)
        with self._disk_takes(source.label), self._fresh_folder(manifest_sha256) as fresh:
            for name, record in _wanted(manifest, label=source.label).items():
                path = fresh / name
                path.parent.mkdir(parents=True, exist_ok=True)
                source.download(name, record["sha256"], path)
                _check(path, record, label=f"{source.label}/{name}")
            (fresh / "manifest.json").write_bytes(manifest)
            for path in (*fresh.rglob("*"), fresh):
                _sync(path)
            try:
                fresh.rename(entry)
            except OSError:
                if not entry.is_dir():  # else another process was faster, with the same bytes
                    raise
            _sync(self.folder)
        log.info("split fetched", split=source.label, bytes=_folder_size(entry))

    @contextmanager
    def _fresh_folder(self, name: str) -> Iterator[Path]:
        """Yield a locked folder to fetch into, removed in the end; what killed processes left goes first."""
        fresh = self.folder / f".new-{name}-{secrets.token_hex(4)}"
        with ExitStack() as stack:
            with (self.folder / "fetching.lock").open("ab") as guard:
                fcntl.flock(guard, fcntl.LOCK_EX)
                for left in (*self.folder.glob(".old-*"), *filter(is_abandoned, self.folder.glob(".new-*"))):
                    shutil.rmtree(left, ignore_errors=True)
                fresh.mkdir()
                stack.callback(shutil.rmtree, fresh, ignore_errors=True)
                held = os.open(fresh, os.O_RDONLY)
                stack.callback(os.close, held)
                fcntl.flock(held, fcntl.LOCK_EX)
            yield fresh

    def _shrink(self) -> None:
        """Remove what was not used for longest until the rest is below the cap, but nothing that is in use."""
        entries = sorted((path for path in self.folder.iterdir() if _is_entry(path)), key=lambda p: p.stat().st_mtime)
        sizes = {entry: _folder_size(entry) for entry in entries}
        excess = sum(sizes.values()) - self.cap_bytes
        for entry in entries:
            if excess <= 0:
                return
            if entry.name not in self._held and _remove_unused(entry):
                excess -= sizes[entry]


def _wanted(manifest: bytes, *, label: str) -> dict[str, dict[str, Any]]:
    files: dict[str, dict[str, Any]] = json.loads(manifest)["files"]
    for name in files:
        if name.startswith("/") or any(part in ("", ".", "..") for part in name.split("/")):
            raise HostFault(f"the manifest of {label} names {name!r}, which lies outside the split")
    return {name: record for name, record in files.items() if not name.startswith(NOT_FETCHED)}


def _sync(path: Path) -> None:
    """Wait until a file or a folder is on the disk: a crash of the host must not leave a name without its bytes."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_whole(path: Path, record: dict[str, Any]) -> bool:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == str(record["sha256"])
    except OSError:  # gone, or the disk does not give it
        return False


def _check(path: Path, record: dict[str, Any], *, label: str) -> None:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != record["sha256"]:
        raise DamagedSplit(f"a damaged {label} was fetched: SHA-256 {digest}, the manifest says {record['sha256']}")


def _is_entry(path: Path) -> bool:
    return path.is_dir() and not path.name.startswith(".")


def _folder_size(entry: Path) -> int:
    return sum(path.stat().st_size for path in entry.rglob("*") if path.is_file())


def _remove_unused(entry: Path) -> bool:
    """Remove an entry that no process holds. Return whether it is gone."""
    lock_path = entry.with_name(f"{entry.name}.lock")
    with lock_path.open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        doomed = entry.with_name(f".old-{entry.name}-{secrets.token_hex(4)}")
        entry.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)
    log.info("split removed from the cache", manifest=entry.name)
    return True
