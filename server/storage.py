"""Files of an instance: submissions by content, prepared splits, results of shards. fsspec underneath."""

import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlparse

import fsspec

from lethe.errors import HostFault, NotFound
from server.config import get_settings

CHUNK = 1 << 20
CONNECT_S, READ_S, ATTEMPTS = 5, 10, 3  # of a request to S3
FULL = (errno.ENOSPC, errno.EDQUOT)


class DamagedFile(HostFault):
    """The content under `key` is not what was stored."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


@dataclass(frozen=True)
class StoredFile:
    """One file of the storage."""

    key: str
    size: int
    written_at: datetime


class Storage:
    """Keys are relative paths such as `submissions/ab/abcdef…`. Writes are atomic: a reader sees all or nothing."""

    def __init__(self, url: str) -> None:
        self.is_local = urlparse(url).scheme in ("", "file")
        self._filesystem, root = fsspec.core.url_to_fs(url, **({} if self.is_local else _remote_options(url)))
        self._root = str(root).rstrip("/")
        if hasattr(self._filesystem, "retries"):
            self._filesystem.retries = 1  # s3fs would make five of each of botocore's rounds of attempts
        if self.is_local:
            Path(self._root).mkdir(parents=True, exist_ok=True, mode=0o700)

    def write(self, key: str, data: bytes) -> str:
        """Store `data` under `key`. Return its SHA-256. Raises HostFault if the storage does not take it."""
        path = self._path(key)
        with _silence_is_a_fault(f"take {key}"):
            if self.is_local:
                with _written_whole(Path(path)) as file:
                    file.write(data)
            else:
                self._filesystem.pipe_file(path, data)
        return hashlib.sha256(data).hexdigest()

    def read(self, key: str) -> bytes:
        """Return what lies under `key`. Raises NotFound, or HostFault if the storage does not answer."""
        with _reading(key):
            return bytes(self._filesystem.cat_file(self._path(key)))

    def read_verified(self, key: str, sha256: str) -> bytes:
        """Return what lies under `key` after comparing its hash. Raises DamagedFile if it differs, also once more."""
        for _ in range(2):
            data = self.read(key)
            digest = hashlib.sha256(data).hexdigest()
            if digest == sha256:
                return data
        raise DamagedFile(key, f"storage gave a damaged {key}: SHA-256 {digest}, expected {sha256}")

    def exists(self, key: str) -> bool:
        """Return whether anything lies under `key`. Raises HostFault, as all that follows does."""
        with _silence_is_a_fault(f"tell of {key}"):
            return bool(self._filesystem.exists(self._path(key)))

    def remove(self, key: str) -> None:
        """Remove what lies under `key`, if anything does."""
        with _silence_is_a_fault(f"remove {key}"):
            if self.exists(key):
                self._filesystem.rm(self._path(key), recursive=True)

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield every key below `prefix`."""
        with _silence_is_a_fault(f"list {prefix}"):
            base = self._path(prefix)
            paths = self._filesystem.find(base) if self._filesystem.exists(base) else []
        for path in paths:
            yield str(path)[len(self._root) + 1 :]

    def written_at(self, key: str) -> datetime | None:
        """Return when what lies under `key` was last written, None if nothing does."""
        with _silence_is_a_fault(f"tell of {key}"):
            try:
                return _written_at(self._filesystem.info(self._path(key)))
            except FileNotFoundError:
                return None

    def listed(self, prefix: str) -> Iterator[StoredFile]:
        """Yield every file below `prefix` with its size and when it was last written."""
        base = self._path(prefix)
        with _silence_is_a_fault(f"list {prefix}"):
            paths = self._filesystem.find(base, detail=True) if self._filesystem.exists(base) else {}
        for path, facts in paths.items():
            yield StoredFile(str(path)[len(self._root) + 1 :], int(facts["size"]), _written_at(facts))

    def download(self, key: str, path: Path) -> None:
        """Write what lies under `key` to a file of this host. Raises NotFound or HostFault."""
        with _reading(key):
            try:
                self._filesystem.get_file(self._path(key), str(path))
            except OSError as error:
                if error.errno not in FULL:
                    raise
                raise HostFault(f"the disk of {path.parent} on this host is full: {key} was not fetched") from error

    def chunks(self, key: str) -> Iterator[bytes]:
        """Return what lies under `key` piece by piece. Raises NotFound or HostFault, at the first piece or later."""
        with _reading(key), self._filesystem.open(self._path(key), "rb", block_size=8 * CHUNK) as file:
            while chunk := file.read(CHUNK):
                yield chunk

    def upload(self, path: Path, key: str) -> None:
        """Store a file of this host under `key`. Raises HostFault."""
        with path.open("rb") as file:
            self.write_file(key, file)

    def write_file(self, key: str, file: IO[bytes]) -> None:
        """Store what an open file holds from its beginning, piece by piece. Raises HostFault."""
        path = self._path(key)
        file.seek(0)
        with (
            _silence_is_a_fault(f"take {key}"),
            _written_whole(Path(path)) if self.is_local else self._filesystem.open(path, "wb") as target,
        ):
            shutil.copyfileobj(file, target, CHUNK)

    def signed_url(self, key: str, *, expires_s: int) -> str | None:
        """Return a temporary public URL of `key`, None where the storage has none."""
        if self.is_local:
            return None
        try:
            return str(self._filesystem.sign(self._path(key), expiration=expires_s))
        except NotImplementedError:
            return None

    def local_folder(self, key: str) -> Path:
        """Return the folder of `key` on this host's disk. Only local storage has one."""
        if not self.is_local:
            raise HostFault(f"{key} lies in remote storage; fetch it to this host first")
        return Path(self._path(key))

    def _path(self, key: str) -> str:
        parts = key.split("/")
        if key.startswith("/") or any(part in ("", ".", "..") for part in parts):
            raise ValueError(f"not a storage key: {key!r}")
        return f"{self._root}/{key}"


def _written_at(file_info: Mapping[str, Any]) -> datetime:
    return file_info.get("LastModified") or datetime.fromtimestamp(file_info["mtime"], UTC)


def _remote_options(url: str) -> dict[str, Any]:
    """Return what a remote file system is opened with: no stale listings, bounded waiting, a few tries."""
    if urlparse(url).scheme not in ("s3", "s3a"):
        return {"use_listings_cache": False, "skip_instance_cache": True}
    from aiobotocore.session import (  # type: ignore[import-untyped]  # noqa: PLC0415 (the group `s3`)
        get_session,
    )
    from botocore.handlers import add_expect_header  # type: ignore[import-untyped]  # noqa: PLC0415

    session = get_session()
    session.unregister("before-call.s3", add_expect_header)  # aiohttp waits without end for who never says "continue"
    return {
        "session": session,
        "use_listings_cache": False,
        "skip_instance_cache": True,
        "config_kwargs": {
            "connect_timeout": CONNECT_S,
            "read_timeout": READ_S,
            "retries": {"mode": "standard", "total_max_attempts": ATTEMPTS},
        },
    }


@contextmanager
def _silence_is_a_fault(asked: str) -> Iterator[None]:
    try:
        yield
    except _failures() as error:
        raise HostFault(f"storage did not {asked}: {_error_text(error)}") from error


@contextmanager
def _reading(key: str) -> Iterator[None]:
    with _silence_is_a_fault(f"give {key}"):
        try:
            yield
        except FileNotFoundError as error:
            raise NotFound(f"storage holds no {key}") from error


@lru_cache
def _failures() -> tuple[type[Exception], ...]:
    """Return what a storage that does not work raises. botocore's errors are no OSErrors, and it may be absent."""
    try:
        from botocore.exceptions import (  # type: ignore[import-untyped]  # noqa: PLC0415 (the group `s3`)
            BotoCoreError,
            ClientError,
        )
    except ImportError:
        return (OSError,)
    return (OSError, BotoCoreError, ClientError)


def _error_text(error: Exception) -> str:
    """Return the error as text: some have none of their own."""
    return str(error) or type(error).__name__


@contextmanager
def _written_whole(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file that takes the place of `path` once all of it is written, and not before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(6)}")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def split_key(slug: str, visibility: str, version: int = 1) -> str:
    """Return where in storage a prepared split lies."""
    return f"splits/{slug}/{visibility}" + (f"-{version}" if version > 1 else "")


def content_key(sha256: str) -> str:
    """Return the key of a submission's content."""
    return f"submissions/{sha256[:2]}/{sha256}"


def dataset_key(sha256: str) -> str:
    """Return the key of an uploaded dataset's archive."""
    return f"datasets/{sha256[:2]}/{sha256}"


@lru_cache
def get_storage() -> Storage:
    """Return this process's storage."""
    return Storage(get_settings().resolved_storage_url)
