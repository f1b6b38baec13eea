"""Zip archives of strangers: every entry is a plain file with a safe relative name, and the sum stays within limits.

Nothing is unpacked here, and nothing touches the disk.
"""

import os
import stat
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO

from lethe.errors import InvalidSubmission, Violation
from lethe.text_files import composed, is_from_system

END_OF_DIRECTORY = b"PK\x05\x06"
ZIP64_LOCATOR = b"PK\x06\x07"
LOCATOR_BYTES = 20  # it comes right before the end of the directory
TAIL_BYTES = (1 << 16) + 22 + LOCATOR_BYTES  # in which the directory's end lies, after the longest comment
HEADER_BYTES = 46  # of one entry in a zip's directory, before its name
CHUNK_BYTES = 1 << 20
WINDOWS = 0  # where an archive was made: FAT
UTF8_FLAG = 0x800
SOURCE_MIB = 2  # of one Python file, whatever a competition's own limit is


@dataclass(frozen=True, kw_only=True)
class ArchiveLimits:
    """What an archive may hold once unpacked."""

    files: int = 1000
    unpacked_bytes: int = 256 << 20
    ratio: int = 100  # unpacked over packed, for entries beyond ratio_from_bytes
    ratio_from_bytes: int = 1 << 20
    depth: int = 12
    name_bytes: int = 255
    path_bytes: int = 1024


Opened = tuple[zipfile.ZipFile, list[zipfile.ZipInfo]]


@contextmanager
def checked_archive(file: IO[bytes], *, limits: ArchiveLimits) -> Iterator[Opened]:
    """Yield a zip archive and its files, without folders and what archivers add. Raises InvalidSubmission."""
    _check_directory_size(file, limits=limits)
    try:
        with zipfile.ZipFile(file) as archive:
            _check_entries(archive.infolist(), limits=limits)  # first: a name may even be empty
            entries = [
                entry for entry in archive.infolist() if not entry.is_dir() and not is_from_system(entry.filename)
            ]
            _check_sizes(entries, limits=limits)
            yield archive, entries
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, UnicodeDecodeError, ValueError) as error:
        raise refused("file", f"is not a whole zip archive: {error}") from error


def size_limits(upload_mib: int) -> str:
    """Return in words what a competition takes: no more than `upload_mib`, and of one Python file no more than any."""
    return f"{upload_mib} MiB" + (f", one Python file up to {SOURCE_MIB} MiB" if upload_mib > SOURCE_MIB else "")


def read_chunks(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Iterator[bytes]:
    """Yield what an entry holds. Raises InvalidSubmission at the end unless length and checksum are right."""
    length = 0
    with archive.open(entry) as stream:
        while length <= entry.file_size and (chunk := stream.read(CHUNK_BYTES)):  # to the end: it compares the checksum
            length += len(chunk)
            if length <= entry.file_size:
                yield chunk
    if length != entry.file_size:
        raise refused(entry.filename, f"holds {length} bytes, its header says {entry.file_size}")


def common_folder(names: list[str]) -> str:
    """Return the folder that all names lie in, with its slash, or nothing: zipping a folder puts it before them."""
    tops = {name.split("/", 1)[0] for name in names}
    return "" if len(tops) != 1 or any("/" not in name for name in names) else f"{tops.pop()}/"


def refused(field: str, message: str, value: str | None = None) -> InvalidSubmission:
    """Return the error that says what of a file is not taken. message: a verb and what follows, as `is empty`."""
    shown = field if len(field) <= 200 else field[:197] + "..."
    what = "The file" if field == "file" else f"{shown!r}"
    return InvalidSubmission(f"{what} {message}", violations=(Violation(shown, message, value),))


def _check_directory_size(file: IO[bytes], *, limits: ArchiveLimits) -> None:
    # zipfile makes an object of every entry before anyone can count them, so the directory's own size is read first.
    start = max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES)
    file.seek(start)
    data = file.read()
    at = data.rfind(END_OF_DIRECTORY, max(0, len(data) - (1 << 16) - 22))
    if at < 0 or len(data) < at + 22:
        raise refused("file", "is not a zip archive: it has no directory at its end")
    entries = int.from_bytes(data[at + 10 : at + 12], "little")
    directory_bytes = int.from_bytes(data[at + 12 : at + 16], "little")
    if entries > limits.files or directory_bytes > limits.files * (HEADER_BYTES + limits.path_bytes):
        raise refused("file", f"has too many entries: a zip holds at most {limits.files} files", f"{entries} entries")
    if data.startswith(ZIP64_LOCATOR, max(0, at - LOCATOR_BYTES)):  # zipfile would believe it rather than what follows
        raise refused("file", "has a zip64 directory, which an archive within the limits does not need")


def _check_entries(entries: list[zipfile.ZipInfo], *, limits: ArchiveLimits) -> None:
    if len(entries) > limits.files:
        raise refused(
            "file", f"has too many entries: a zip holds at most {limits.files} files", f"{len(entries)} entries"
        )
    seen: set[str] = set()
    for entry in entries:
        _check_kind(entry)
        _give_portable_name(entry)
        _check_name(entry, limits=limits)
        name = entry.filename.rstrip("/")
        if name in seen:
            raise refused(name, "is in the archive twice")
        seen.add(name)
    folders = {str(parent) for name in seen for parent in PurePosixPath(name).parents}
    for entry in entries:
        if not entry.is_dir() and entry.filename in folders:
            raise refused(entry.filename, "is both a file and a folder")


def _check_kind(entry: zipfile.ZipInfo) -> None:
    mode = entry.external_attr >> 16
    if stat.S_ISLNK(mode):
        raise refused(entry.filename, "is a link; only plain files are allowed")
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise refused(entry.filename, "is a device, pipe or socket; only plain files are allowed")
    if entry.flag_bits & 0x1:
        raise refused(entry.filename, "is encrypted; nobody could read it")
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise refused(entry.filename, "is compressed in another way than stored or deflate")


def _give_portable_name(entry: zipfile.ZipInfo) -> None:
    """Set the name as it was where the archive was made: Macs write UTF-8 without saying so, Windows backslashes.

    Whoever opens the entry still finds it: zipfile compares `orig_filename`.
    """
    name = entry.orig_filename
    if entry.create_system == WINDOWS:
        name = name.replace("\\", "/")
    if not entry.flag_bits & UTF8_FLAG:
        with suppress(UnicodeError):
            name = name.encode("cp437").decode()
    entry.filename = composed(name)


def _check_name(entry: zipfile.ZipInfo, *, limits: ArchiveLimits) -> None:
    name = entry.filename
    if "\\" in name or any(unicodedata.category(c).startswith("C") for c in name):
        raise refused(entry.orig_filename, "holds a backslash or a character that cannot be seen")
    if name.startswith("/") or (len(name) > 1 and name[1] == ":"):
        raise refused(name, "is an absolute path; only paths inside the archive are allowed")
    parts = name.rstrip("/").split("/")
    if any(part == ".." for part in parts):
        raise refused(name, "leads out of the archive with '..'")
    if any(part in ("", ".") for part in parts):
        raise refused(name, "holds an empty path component")
    if len(parts) > limits.depth:
        raise refused(name, f"lies deeper than {limits.depth} folders")
    if max(len(part.encode()) for part in parts) > limits.name_bytes or len(name.encode()) > limits.path_bytes:
        raise refused(name, f"is longer than {limits.name_bytes} bytes, or its path than {limits.path_bytes}")


def _check_sizes(entries: list[zipfile.ZipInfo], *, limits: ArchiveLimits) -> None:
    total = sum(entry.file_size for entry in entries)
    if total > limits.unpacked_bytes:
        raise refused("file", f"unpacks to more than {limits.unpacked_bytes} bytes", str(total))
    for entry in entries:
        if entry.file_size > max(limits.ratio_from_bytes, limits.ratio * entry.compress_size):
            raise refused(
                entry.filename,
                f"unpacks to more than {limits.ratio} times its packed size",
                f"{entry.file_size} of {entry.compress_size} bytes",
            )
