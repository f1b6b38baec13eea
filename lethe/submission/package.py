"""Reads an upload into named files without running or unpacking it: nothing touches the disk.

A zip is taken only if every entry is a plain file with a safe relative name and the whole stays within LIMITS.
"""

import io
import stat
import unicodedata
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from lethe.errors import InvalidSubmission, Violation
from lethe.submission import notebook
from lethe.submission.entry_point import DESCRIPTION, EntryPoint, entry_point_of_notebook, find_entry_point
from lethe.submission.gpu_guards import without_gpu_guards
from lethe.submission.notebook import Mode
from lethe.submission.requirements import REQUIREMENTS, unmet_requirements

SUFFIXES = (".py", ".ipynb", ".zip")
NOT_WANTED = ("__MACOSX", ".DS_Store", "__pycache__")  # what archivers add by themselves
END_OF_DIRECTORY = b"PK\x05\x06"
ZIP64_LOCATOR = b"PK\x06\x07"
LOCATOR_BYTES = 20  # it stands right before the end of the directory
HEADER_BYTES = 46  # of one entry in a zip's directory, before its name
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class PackageLimits:
    """What a package may hold once unpacked."""

    files: int = 1000
    unpacked_bytes: int = 256 << 20
    ratio: int = 100  # unpacked over packed, for entries beyond ratio_from_bytes
    ratio_from_bytes: int = 1 << 20
    depth: int = 12
    name_bytes: int = 255
    path_bytes: int = 1024
    source_bytes: int = 2 << 20  # one Python file
    all_source_bytes: int = 8 << 20  # all Python files of a zip
    notebook_bytes: int = 20 << 20  # with the outputs that are saved in it


LIMITS = PackageLimits()


@dataclass(frozen=True)
class Package:
    """A submission's files by relative POSIX path, and what of them to call."""

    kind: str  # py, ipynb, zip
    files: dict[str, bytes]
    entry_point: EntryPoint


def load_package(
    data: bytes,
    filename: str,
    *,
    limits: PackageLimits = LIMITS,
    modes: Sequence[Mode] = ("function",),
    sources_only: bool = False,
) -> Package:
    """Return the checked package in `data`. Raises InvalidSubmission naming file, line and what is allowed.

    modes: what may be done with a notebook; where both may, one that saves models by itself is run as it is.
    sources_only: check the other files of a zip as well, but keep them empty.
    """
    suffix = PurePosixPath(filename).suffix.lower()
    if not data:
        raise _refused("file", "is empty")
    if suffix == ".py":
        if len(data) > limits.source_bytes:
            raise _refused("file", f"a Python file has at most {limits.source_bytes} bytes", str(len(data)))
        cell = notebook.cell_of_export(data)
        if cell is None:
            _check_function_mode(filename, modes=modes)
            return _without_guards("py", {"submission.py": data}, shown_as=filename)
        return _notebook_package("py", [cell], filename, modes=modes)
    if suffix == ".ipynb":
        if len(data) > limits.notebook_bytes:
            raise _refused("file", f"a notebook has at most {limits.notebook_bytes} bytes", str(len(data)))
        return _notebook_package("ipynb", notebook.code_cells(data, shown_as=filename), filename, modes=modes)
    if suffix == ".zip":
        _check_function_mode(filename, modes=modes)
        files = read_zip(data, limits=limits, sources_only=sources_only)
        return _without_guards("zip", files)
    raise _refused("file", f"the name must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}", filename)


def _without_guards(kind: str, files: dict[str, bytes], *, shown_as: str | None = None) -> Package:
    entry_point = find_entry_point(files, shown_as=shown_as)
    found = {name: without_gpu_guards(content) for name, content in files.items() if name.endswith(".py")}
    left_out = tuple(
        part if name == entry_point.file else replace(part, reason=f"in {name}: {part.reason}")
        for name, (_content, parts) in found.items()
        for part in parts
    )
    changed = {name: content for name, (content, _parts) in found.items()}
    notes = unmet_requirements(files.get(REQUIREMENTS, b"").decode(errors="replace"))
    return Package(kind, files | changed, replace(entry_point, left_out=left_out, notes=notes))


def _notebook_package(kind: str, cells: Sequence[str], filename: str, *, modes: Sequence[Mode]) -> Package:
    mode = _mode(cells, filename, modes=modes)
    entry_point = entry_point_of_notebook(cells, mode=mode, shown_as=filename)
    if mode == "notebook":
        return Package(kind, notebook.list_files(cells), entry_point)
    sliced = notebook.sliced_for(cells, entry_point.function, shown_as=filename)
    left_out = sliced.left_out if kind == "ipynb" else tuple(replace(part, cell=0) for part in sliced.left_out)
    return Package(kind, notebook.list_files(sliced.cells), replace(entry_point, left_out=left_out))


def _check_function_mode(filename: str, *, modes: Sequence[Mode]) -> None:
    if "function" not in modes:
        raise _refused("file", "this competition takes only notebooks with a loop of their own", filename)


def _mode(cells: Sequence[str], filename: str, *, modes: Sequence[Mode]) -> Mode:
    asked = notebook.mode_said_in(cells, shown_as=filename)
    if asked is not None and asked not in modes:
        raise _refused("file", f"asks for the mode {asked}; this competition allows {', '.join(modes)}", filename)
    if asked is not None or len(modes) == 1:
        return asked or modes[0]
    return "notebook" if notebook.saves_checkpoints(cells) else "function"


def read_zip(data: bytes, *, limits: PackageLimits = LIMITS, sources_only: bool = False) -> dict[str, bytes]:
    """Return the files of a zip. Raises InvalidSubmission. sources_only: the others are checked, and come empty."""
    _check_directory_size(data, limits=limits)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            _check_entries(archive.infolist(), limits=limits)  # first: a name may even be empty
            entries = [entry for entry in archive.infolist() if not entry.is_dir() and not _is_litter(entry.filename)]
            _check_sizes(entries, limits=limits)
            return _without_common_folder(_read_all(archive, entries, sources_only=sources_only))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, UnicodeDecodeError, ValueError) as error:
        raise _refused("file", f"is not a whole zip archive: {error}") from error


def _check_directory_size(data: bytes, *, limits: PackageLimits) -> None:
    # zipfile makes an object of every entry before anyone can count them, so the directory's own size is read first.
    at = data.rfind(END_OF_DIRECTORY, max(0, len(data) - (1 << 16) - 22))
    if at < 0 or len(data) < at + 22:
        raise _refused("file", "is not a zip archive: it has no directory at its end")
    entries = int.from_bytes(data[at + 10 : at + 12], "little")
    directory_bytes = int.from_bytes(data[at + 12 : at + 16], "little")
    if entries > limits.files or directory_bytes > limits.files * (HEADER_BYTES + limits.path_bytes):
        raise _refused("file", f"a zip holds at most {limits.files} files", f"{entries} entries")
    if data.startswith(ZIP64_LOCATOR, max(0, at - LOCATOR_BYTES)):  # zipfile would believe it rather than what follows
        raise _refused("file", "has a zip64 directory, which an archive within the limits does not need")


def _check_entries(entries: list[zipfile.ZipInfo], *, limits: PackageLimits) -> None:
    if len(entries) > limits.files:
        raise _refused("file", f"a zip holds at most {limits.files} files", f"{len(entries)} entries")
    seen: set[str] = set()
    for entry in entries:
        _check_kind(entry)
        _check_name(entry, limits=limits)
        name = entry.filename.rstrip("/")
        if name in seen:
            raise _refused(name, "stands in the archive twice")
        seen.add(name)
    folders = {str(parent) for name in seen for parent in PurePosixPath(name).parents}
    for entry in entries:
        if not entry.is_dir() and entry.filename in folders:
            raise _refused(entry.filename, "is both a file and a folder")


def _check_kind(entry: zipfile.ZipInfo) -> None:
    mode = entry.external_attr >> 16
    if stat.S_ISLNK(mode):
        raise _refused(entry.filename, "is a link; only plain files are allowed")
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise _refused(entry.filename, "is a device, pipe or socket; only plain files are allowed")
    if entry.flag_bits & 0x1:
        raise _refused(entry.filename, "is encrypted; nobody could read it")
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _refused(entry.filename, "is compressed in another way than stored or deflate")


def _check_name(entry: zipfile.ZipInfo, *, limits: PackageLimits) -> None:
    name = entry.filename
    if entry.orig_filename != name or "\\" in name or any(unicodedata.category(c).startswith("C") for c in name):
        raise _refused(entry.orig_filename, "holds a backslash or a character that cannot be seen")
    if name.startswith("/") or (len(name) > 1 and name[1] == ":"):
        raise _refused(name, "is an absolute path; only paths inside the archive are allowed")
    parts = name.rstrip("/").split("/")
    if any(part == ".." for part in parts):
        raise _refused(name, "leads out of the archive with '..'")
    if any(part in ("", ".") for part in parts):
        raise _refused(name, "holds an empty path component")
    if len(parts) > limits.depth:
        raise _refused(name, f"lies deeper than {limits.depth} folders")
    if max(len(part.encode()) for part in parts) > limits.name_bytes or len(name.encode()) > limits.path_bytes:
        raise _refused(name, f"is longer than {limits.name_bytes} bytes, or its path than {limits.path_bytes}")


def _check_sizes(entries: list[zipfile.ZipInfo], *, limits: PackageLimits) -> None:
    total = sum(entry.file_size for entry in entries)
    if total > limits.unpacked_bytes:
        raise _refused("file", f"unpacks to more than {limits.unpacked_bytes} bytes", str(total))
    for entry in entries:
        if entry.file_size > max(limits.ratio_from_bytes, limits.ratio * entry.compress_size):
            raise _refused(
                entry.filename,
                f"unpacks to more than {limits.ratio} times its packed size",
                f"{entry.file_size} of {entry.compress_size} bytes",
            )
        if is_source(entry.filename) and entry.file_size > limits.source_bytes:
            raise _refused(entry.filename, f"a Python file has at most {limits.source_bytes} bytes")
    sources = sum(entry.file_size for entry in entries if is_source(entry.filename))
    if sources > limits.all_source_bytes:
        raise _refused("file", f"holds more than {limits.all_source_bytes} bytes of Python", str(sources))


def is_source(name: str) -> bool:
    """Return whether a file says what is run, or how: what is read of a package to check it."""
    return name.endswith(".py") or name.rsplit("/", 1)[-1] in (DESCRIPTION, REQUIREMENTS)


def _read_all(archive: zipfile.ZipFile, entries: Sequence[zipfile.ZipInfo], *, sources_only: bool) -> dict[str, bytes]:
    return {
        entry.filename: _content(archive, entry, keep=is_source(entry.filename) or not sources_only)
        for entry in entries
    }


def _content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, *, keep: bool) -> bytes:
    """Return what an entry holds, or nothing, once its length and checksum are found right."""
    chunks, length = [], 0
    with archive.open(entry) as stream:
        while length <= entry.file_size and (chunk := stream.read(CHUNK_BYTES)):  # to the end: it compares the checksum
            length += len(chunk)
            if keep:
                chunks.append(chunk)
    if length != entry.file_size:
        raise _refused(entry.filename, f"holds {length} bytes, its header says {entry.file_size}")
    return b"".join(chunks)


def _without_common_folder(files: dict[str, bytes]) -> dict[str, bytes]:
    """Zipping a folder puts its name before every path: take it off, so that the files stand at the top."""
    tops = {name.split("/", 1)[0] for name in files}
    if len(tops) != 1 or any("/" not in name for name in files):
        return files
    return {name.split("/", 1)[1]: content for name, content in files.items()}


def _is_litter(name: str) -> bool:
    return any(part in NOT_WANTED for part in name.split("/"))


def _refused(field: str, message: str, value: str | None = None) -> InvalidSubmission:
    shown = field if len(field) <= 200 else field[:197] + "..."
    what = "The file" if field == "file" else f"{shown!r}"
    return InvalidSubmission(f"{what} {message}", violations=(Violation(shown, message, value),))
