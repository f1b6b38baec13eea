"""A folder or a zip archive as names and bytes, its levels of folders, and headers of its images."""

import hashlib
import struct
import zipfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, get_args

from lethe.data.datasets.image_list import TEST_WORDS, Level
from lethe.data.errors import InvalidDataset
from lethe.errors import InvalidInput, InvalidSubmission
from lethe.submission.archive import ArchiveLimits, checked_archive, common_folder
from lethe.text_files import is_visible, visible_files

TEST_FOLDERS = frozenset(word for word in TEST_WORDS if word.isalpha() and len(word) > 2) - {"yes", "false", "true"}
HELP = (
    "Put images into a folder for each class (cat/1.png), or for each class and person (cat/ann/1.png); or add a CSV "
    "with a column of paths and one of classes; or name files of questions *.jsonl, or a CSV whose rows are the data"
)


def chosen_levels(folders: Sequence[str]) -> list[Level]:
    allowed = get_args(Level)
    if folders.count("label") != 1 or any(level not in allowed for level in folders):
        raise InvalidDataset(
            f"folders must name label once, and of {', '.join(allowed)} only; had {', '.join(folders)}"
        )
    return list(folders)  # type: ignore[arg-type]  # each was looked at


def guessed_levels(names: Sequence[str], test_values: Sequence[str]) -> list[Level]:
    depths = Counter(len(PurePosixPath(name).parts) - 1 for name in names)
    depth = depths.most_common(1)[0][0]
    if len(depths) > 1:
        odd = next(name for name in names if len(PurePosixPath(name).parts) - 1 != depth)
        raise InvalidDataset(f"most images lie {depth} folders deep, but {odd} does not. {HELP}")
    return _levels([PurePosixPath(name).parts[:-1] for name in names], test_values)


def _levels(folders: Sequence[tuple[str, ...]], test_values: Sequence[str]) -> list[Level]:
    """Return what each level of folders says: whether for testing, the class, the person."""
    levels: list[Level] = []
    for place in range(len(folders[0])):
        values = {parts[place] for parts in folders}
        if len(values) == 1:
            levels.append("any")
        elif "test" not in levels and _says_test(values, test_values):
            levels.append("test")
        elif "label" not in levels:
            levels.append("label")
        else:
            levels.append("any" if "person" in levels else "person")
    if "label" not in levels:
        raise InvalidDataset(f"all images lie in one folder, so their classes are not known. {HELP}")
    return levels


def _says_test(values: set[str], test_values: Sequence[str]) -> bool:
    """Return whether folders' names tell test from training. Raises InvalidDataset where only some do."""
    if test_values:
        return values >= set(test_values)
    known = {value for value in values if value.lower() in TEST_FOLDERS}
    if {TEST_WORDS[value.lower()] for value in known} == {True, False} and known != values:
        odd = min(values - known)
        raise InvalidDataset(
            f"of the folders {', '.join(sorted(values)[:9])} some tell test from training, but {odd!r} does not: take "
            "it away, or name those for testing as `test_values`"
        )
    return known == values


HEADER_BYTES = 1 << 16  # a JPEG's size comes after its thumbnail and colour profile
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # JPEG's markers that name a size
EXIF = 0xE1
ORIENTATION = 0x0112
STANDALONE = frozenset(range(0xD0, 0xDA)) | {0x01}


@dataclass(frozen=True)
class ImageHeader:
    """channels: 1 for grey, 3 for colour. mime: of a page's picture; "" for what browsers do not show.

    bits: of a channel. is_turned: the camera noted that the picture is not upright.
    """

    width: int
    height: int
    channels: int
    mime: str = ""
    bits: int = 8
    has_alpha: bool = False
    is_turned: bool = False


def read_header(data: bytes) -> ImageHeader | None:
    """Return what the first bytes of an image say; None for another format than PNG, JPEG, GIF, BMP and PGM/PPM."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n"):
            width, height, bits, colour = struct.unpack(">IIBB", data[16:26])
            has_alpha = colour in (4, 6) or b"tRNS" in data.partition(b"IDAT")[0]
            return ImageHeader(width, height, 1 if colour in (0, 4) else 3, "image/png", bits, has_alpha)
        if data.startswith(b"GIF8"):
            width, height = struct.unpack("<HH", data[6:10])
            return ImageHeader(width, height, 3, "image/gif")
        if data.startswith(b"BM"):
            width, height = struct.unpack("<ii", data[18:26])
            return ImageHeader(width, abs(height), 3, "image/bmp")
        if data[:2] in (b"P5", b"P6"):
            words = b" ".join(line.split(b"#")[0] for line in data[:512].split(b"\n")).split()
            return ImageHeader(int(words[1]), int(words[2]), 1 if words[0] == b"P5" else 3)
        return _jpeg(data) if data.startswith(b"\xff\xd8") else None
    except (struct.error, IndexError, ValueError):
        return None


def _jpeg(data: bytes) -> ImageHeader | None:
    at, is_turned = 2, False
    while data[at] == 0xFF:
        marker = data[at + 1]
        if marker in FRAMES:
            height, width, components = struct.unpack(">HHB", data[at + 5 : at + 10])
            return ImageHeader(width, height, 1 if components == 1 else 3, "image/jpeg", is_turned=is_turned)
        if marker == EXIF:
            is_turned = _is_turned(data[at + 4 :])
        at += 2 if marker in STANDALONE else 2 + struct.unpack(">H", data[at + 2 : at + 4])[0]
    return None


def _is_turned(segment: bytes) -> bool:
    """Return whether a JPEG's EXIF says that the picture is not upright."""
    if not segment.startswith(b"Exif\0\0"):
        return False
    tiff = segment[6:]
    order = "<" if tiff.startswith(b"II") else ">"
    start = struct.unpack_from(f"{order}I", tiff, 4)[0]
    for entry in range(struct.unpack_from(f"{order}H", tiff, start)[0]):
        tag, _, _, value = struct.unpack_from(f"{order}HHIH", tiff, start + 2 + 12 * entry)
        if tag == ORIENTATION:
            return int(value) > 1
    return False


MAX_FILES = 1_000_000
MAX_UNPACKED_BYTES = 1 << 40
START_BYTES = 4096  # of a file: those that are alike so far are compared as a whole
MAX_COMPARED_BYTES = 1 << 30


class Folder:
    """names: of all files that are not hidden, relative, with "/" between folders."""

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


Source = Folder | Archive


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
