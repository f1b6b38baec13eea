"""A folder or a zip archive as names and bytes: what both the command and the server's reader look at."""

import hashlib
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Protocol

from lethe.errors import InvalidInput, InvalidSubmission
from lethe.submission.archive import ArchiveLimits, checked_archive, common_folder
from lethe.visible_files import is_visible, visible_files

MAX_FILES = 1_000_000
MAX_UNPACKED_BYTES = 1 << 40
START_BYTES = 4096  # of a file: those that are alike so far are compared as a whole
MAX_COMPARED_BYTES = 1 << 30


class Source(Protocol):
    """names: of all files that are not hidden, relative, with "/" between folders."""

    names: tuple[str, ...]

    def read(self, name: str, *, at_most: int) -> bytes:
        """Return the first bytes of a file."""


class Folder:
    def __init__(self, root: Path) -> None:
        self._root = root
        self.names = tuple(path.relative_to(root).as_posix() for path in visible_files(root))

    def read(self, name: str, *, at_most: int) -> bytes:
        with (self._root / name).open("rb") as file:
            return file.read(at_most)


class Archive:
    """A zip that was checked; names are those that it has once unpacked, without a folder around them all."""

    def __init__(self, archive: zipfile.ZipFile, entries: list[zipfile.ZipInfo]) -> None:
        self._archive = archive
        top = common_folder([entry.filename for entry in entries])
        self._entries = {entry.filename.removeprefix(top): entry for entry in entries}
        self.names = tuple(sorted(filter(is_visible, self._entries)))

    def read(self, name: str, *, at_most: int) -> bytes:
        with self._archive.open(self._entries[name]) as file:
            return file.read(at_most)


def open_archive(file: IO[bytes]) -> Archive:
    """Return a zip of this machine's own user. Raises InvalidInput if it is none, or holds what no upload may."""
    limits = ArchiveLimits(files=MAX_FILES, unpacked_bytes=MAX_UNPACKED_BYTES, ratio_from_bytes=16 << 20)
    try:
        with checked_archive(file, limits=limits) as (_, entries):
            pass
    except InvalidSubmission as error:
        raise InvalidInput(error.detail, violations=error.violations) from error
    return Archive(zipfile.ZipFile(file), entries)


def equal_files(source: Source, names: Iterable[str]) -> list[list[str]]:
    """Return the files whose bytes are those of another one, together."""
    alike = _equal_starts(source, names, at_most=START_BYTES)
    return [same for group in alike for same in _equal_starts(source, group, at_most=MAX_COMPARED_BYTES)]


def _equal_starts(source: Source, names: Iterable[str], *, at_most: int) -> list[list[str]]:
    found: dict[bytes, list[str]] = {}
    for name in names:
        found.setdefault(hashlib.blake2b(source.read(name, at_most=at_most), digest_size=16).digest(), []).append(name)
    return [group for group in found.values() if len(group) > 1]
