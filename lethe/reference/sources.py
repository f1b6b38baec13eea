"""Where a bundle comes from: a file, a folder or an address. Nothing that it says is believed yet."""

import stat
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Protocol
from urllib.parse import urlsplit
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

import httpx

from lethe.reference.bundle import MAX_FILES, InvalidReference

CHUNK = 2**20
LOCAL = ("127.0.0.1", "localhost", "::1")
TIMEOUT_S = 30.0
MAX_REDIRECTS = 5


class Source(Protocol):
    """The files of a bundle by name."""

    def names(self) -> list[str]:
        """Return the names of all files, each as often as it is there."""

    def open(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """Return the bytes of one file."""


class ZipSource:
    """A bundle as one file."""

    def __init__(self, archive: ZipFile) -> None:
        self._archive = archive

    def names(self) -> list[str]:
        return self._archive.namelist()

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        if self._archive.getinfo(name).compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            raise InvalidReference(f"{name} is packed in another way than deflate")
        try:
            with self._archive.open(name) as file:
                yield file
        except (BadZipFile, RuntimeError, EOFError, zlib.error) as error:  # RuntimeError: encrypted
            raise InvalidReference(f"{name} cannot be unpacked: {error}") from error


class FolderSource:
    """A bundle that lies unpacked in a folder. Links are not followed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        found = []
        for path in self._folder.rglob("*"):
            if path.is_symlink() or not (path.is_dir() or path.is_file()):
                raise InvalidReference(f"{path} is a link or something special: a reference split has files alone")
            found += [path.relative_to(self._folder).as_posix()] if path.is_file() else []
            if len(found) > MAX_FILES + 1:
                raise InvalidReference(f"{self._folder} has more than {MAX_FILES} files")
        return found

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        with (self._folder / name).open("rb") as file:
            yield file


@contextmanager
def opened(source: str | Path, *, max_bytes: int) -> Iterator[Source]:
    """Give a bundle: a folder, a file, or an address that begins with https:// (http:// on this machine alone).

    max_bytes: no more is downloaded. Raises InvalidReference for what is neither, or cannot be had.
    """
    if "://" in str(source):
        with TemporaryDirectory(prefix="lethe-reference-") as folder:
            path = Path(folder) / "bundle.zip"
            _download(str(source), path, max_bytes)
            with _zip(path, str(source)) as archive:
                yield ZipSource(archive)
        return
    path = Path(source)
    if path.is_dir():
        yield FolderSource(path)
        return
    with _zip(path, str(path)) as archive:
        yield ZipSource(archive)


@contextmanager
def _zip(path: Path, shown: str) -> Iterator[ZipFile]:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InvalidReference(f"{shown} is neither a folder nor a file")
        archive = ZipFile(path)
    except (OSError, BadZipFile) as error:
        raise InvalidReference(f"{shown} cannot be read as a reference split (a zip file): {error}") from error
    with archive:
        yield archive


def _download(address: str, into: Path, max_bytes: int) -> None:
    try:
        for _ in range(MAX_REDIRECTS):
            _require_encrypted(address)
            with httpx.stream("GET", address, timeout=TIMEOUT_S) as answer:
                if answer.next_request is None:
                    _store(answer, address, into, max_bytes)
                    return
                address = str(answer.next_request.url)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise InvalidReference(f"{address} cannot be downloaded: {error}") from error
    raise InvalidReference(f"{address} redirects more than {MAX_REDIRECTS} times")


def _require_encrypted(address: str) -> None:
    parts = urlsplit(address)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOCAL):
        raise InvalidReference(f"{address} is no https:// address; http:// is taken from this machine alone")


def _store(answer: httpx.Response, address: str, into: Path, max_bytes: int) -> None:
    if answer.status_code != httpx.codes.OK:
        raise InvalidReference(f"{address} answered with status {answer.status_code}")
    size = 0
    with into.open("xb") as file:
        for piece in answer.iter_bytes(CHUNK):
            size += len(piece)
            if size > max_bytes:
                raise InvalidReference(f"{address} is more than {max_bytes / 2**20:g} MiB; --max-mib allows more")
            file.write(piece)
