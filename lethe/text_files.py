"""Text that a person wrote on any system: UTF-8 with or without a signature, UTF-16 with one; any ends of lines.

Every file that a person writes is read here, so that one from Windows or a Mac means the same as one from Linux.

Files that a person means are not the hidden ones, nor those that systems and archivers add by themselves.
"""

import codecs
import unicodedata
from pathlib import Path
from typing import Literal

FROM_SYSTEMS = frozenset(
    {"__macosx", ".ds_store", "__pycache__", "thumbs.db", "ehthumbs.db", "desktop.ini", "@eadir", "$recycle.bin"}
)


def is_from_system(name: str) -> bool:
    """Return whether a path leads to what a system or an archiver adds beside a person's files."""
    return any(part.lower() in FROM_SYSTEMS or part.startswith("._") for part in name.split("/"))


def is_visible(name: str) -> bool:
    """Return whether a person sees this file of a folder: neither it nor a folder around it is hidden.

    name: relative to the folder, with "/" between folders.
    """
    return not is_from_system(name) and not any(part.startswith(".") for part in name.split("/"))


def visible_files(root: Path) -> list[Path]:
    """Return the files below a folder that are not hidden, sorted by their names."""
    named = sorted((path.relative_to(root).as_posix(), path) for path in root.rglob("*"))
    return [path for name, path in named if is_visible(name) and path.is_file()]


SIGNATURE = "\ufeff"
SIGNATURES = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose signature begins it
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def decode_text(data: bytes, *, errors: Literal["strict", "replace"] = "strict") -> str:
    """Return what the bytes say, without a signature and with newlines between lines.

    Raises ValueError naming the first line that is not UTF-8, unless such bytes are replaced.
    """
    signature, encoding = next((each for each in SIGNATURES if data.startswith(each[0])), (b"", "utf-8"))
    try:
        text = data[len(signature) :].decode(encoding, errors)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, len(signature) + error.start) + 1
        raise ValueError(f"line {line} is not {encoding.upper()} text: save the file as UTF-8") from error
    return plain_text(text)


def plain_text(text: str) -> str:
    """Return a text without a signature, and with newlines between lines."""
    return text.removeprefix(SIGNATURE).replace("\r\n", "\n").replace("\r", "\n")


def read_text(path: Path) -> str:
    """Return what a file says. Raises OSError, or ValueError as `decode_text` does."""
    return decode_text(path.read_bytes())


def without_invisible(word: str) -> str:
    """Return a word without characters that take no room: signatures, joiners, marks of direction."""
    return "".join(letter for letter in word if unicodedata.category(letter) != "Cf")


def composed(name: str) -> str:
    """Return a name with each letter and its accent as one character: Macs store them as two."""
    return unicodedata.normalize("NFC", name)


def as_on_disk(path: Path) -> Path:
    """Return a path with its last name as the folder spells it: a Mac's disk may hold letter and accent as two
    characters where a file says one. One that is not there is returned as it is."""
    if path.exists() or path.name.isascii() or not path.parent.is_dir():
        return path
    return next((each for each in path.parent.iterdir() if composed(each.name) == composed(path.name)), path)
