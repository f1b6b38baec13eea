"""Takes a bundle from a stranger's folder, zip or address: checks signature and every byte, then makes it a split."""

import secrets
import shutil
import stat
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO
from urllib.parse import urlsplit
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

import httpx

from lethe.data.errors import DamagedSplit
from lethe.errors import InvalidInput
from lethe.evaluation.manifest import MANIFEST, FileRecord, Manifest
from lethe.reference.bundle import (
    CARD,
    DESCRIPTION,
    MAX_DESCRIPTION_BYTES,
    MAX_FILES,
    BundleDescription,
    InvalidReference,
)

CHUNK = 2**20
LOCAL = ("127.0.0.1", "localhost", "::1")
TIMEOUT_S = 30.0
MAX_REDIRECTS = 5


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


Source = ZipSource | FolderSource


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
            parts = urlsplit(address)
            if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOCAL):
                raise InvalidReference(f"{address} is no https:// address; http:// is taken from this machine alone")
            with httpx.stream("GET", address, timeout=TIMEOUT_S) as answer:
                if answer.next_request is None:
                    _store(answer, address, into, max_bytes)
                    return
                address = str(answer.next_request.url)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise InvalidReference(f"{address} cannot be downloaded: {error}") from error
    raise InvalidReference(f"{address} redirects more than {MAX_REDIRECTS} times")


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


MAX_BYTES = 2 * 2**30


def fetch(
    source: str | Path, into: Path, *, keys: Collection[str] = (), any_signer: bool = False, max_bytes: int = MAX_BYTES
) -> BundleDescription:
    """Unpack a reference split into a new folder, which then is a prepared split, and return its description.

    source: a file, a folder or an address. keys: public keys (base64) that are trusted. any_signer: take it whoever
    signed it, or nobody; its files are still what its description says. max_bytes: of all files together.
    Raises InvalidReference naming what is wrong; then nothing is left in `into`.
    """
    if into.exists():
        raise InvalidInput(f"{into} exists: name a new folder")
    part = into.with_name(f".{into.name}.{secrets.token_hex(4)}.part")
    try:
        with opened(source, max_bytes=max_bytes) as bundle:
            described = _described(bundle, keys=keys, any_signer=any_signer, max_bytes=max_bytes)
            for name, record in described.files.items():
                path = part / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with bundle.open(name) as file, path.open("xb") as target:
                    _copy(file, target, name, record)
        _require_split(part, described)
        part.rename(into)
    except OSError as error:
        raise InvalidReference(f"{into} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return described


def verify(
    source: str | Path, *, keys: Collection[str] = (), any_signer: bool = False, max_bytes: int = MAX_BYTES
) -> BundleDescription:
    """Return the description of a bundle whose every byte was checked; nothing is unpacked. Raises InvalidReference."""
    with opened(source, max_bytes=max_bytes) as bundle:
        described = _described(bundle, keys=keys, any_signer=any_signer, max_bytes=max_bytes)
        for name, record in described.files.items():
            with bundle.open(name) as file:
                _copy(file, None, name, record)
    return described


def _described(bundle: Source, *, keys: Collection[str], any_signer: bool, max_bytes: int) -> BundleDescription:
    names = bundle.names()
    if DESCRIPTION not in names:
        raise InvalidReference(f"this is no reference split: it has no {DESCRIPTION}")
    with bundle.open(DESCRIPTION) as file:
        text = file.read(MAX_DESCRIPTION_BYTES + 1)
    if len(text) > MAX_DESCRIPTION_BYTES:
        raise InvalidReference(f"{DESCRIPTION} is more than {MAX_DESCRIPTION_BYTES // 2**20} MiB")
    described = BundleDescription.parse(text)
    if any_signer:
        described.check_is_intact()
    else:
        described.check_signature(keys)
    if described.size > max_bytes:
        raise InvalidReference(
            f"its files are {described.size / 2**20:.0f} MiB, allowed are {max_bytes / 2**20:g}; --max-mib allows more"
        )
    listed = sorted([*described.files, DESCRIPTION])
    if sorted(names) != listed:
        odd = sorted(set(names) ^ set(listed)) or [name for name in set(names) if names.count(name) > 1]
        raise InvalidReference(f"its files are not those that {DESCRIPTION} names: {odd[0][:120]!r}")
    return described


def _copy(source: IO[bytes], target: IO[bytes] | None, name: str, record: FileRecord) -> None:
    """Copy one file; no more is read than its description says. Raises InvalidReference for other bytes."""
    found, left = sha256(), record.size + 1
    while left and (piece := source.read(min(CHUNK, left))):
        left -= len(piece)
        found.update(piece)
        if target is not None:
            target.write(piece)
    if left != 1 or found.hexdigest() != record.sha256:
        raise InvalidReference(f"{name} is not what {DESCRIPTION} says: other bytes than were signed")


def _require_split(folder: Path, described: BundleDescription) -> None:
    """Raise InvalidReference unless the split's own manifest names just the files whose hashes were checked."""
    try:
        manifest = Manifest.read(folder)
    except (DamagedSplit, RecursionError) as error:
        raise InvalidReference(f"its {MANIFEST} is none of a prepared split: {error}") from error
    if manifest.files != {name: record for name, record in described.files.items() if name not in (MANIFEST, CARD)}:
        raise InvalidReference(f"its {MANIFEST} names other files than {DESCRIPTION}")
