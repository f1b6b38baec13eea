"""Reads an upload into named files without running or unpacking it: nothing touches the disk.

A zip is taken only if every entry is a plain file with a safe relative name and the whole stays within LIMITS.
"""

import io
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Self

from lethe.submission import notebook
from lethe.submission.archive import SOURCE_MIB, ArchiveLimits, checked_archive, common_folder, read_chunks, refused
from lethe.submission.entry_point import DESCRIPTION, EntryPoint, entry_point_of_notebook, find_entry_point
from lethe.submission.notebook import Mode
from lethe.submission.parsing import parse_python
from lethe.submission.requirements import REQUIREMENTS, unmet_requirements
from lethe.text_files import decode_text


@dataclass(frozen=True)
class LineEdits:
    """Cells and lines are counted from 1. emptied: cell, first and last line. replaced: cell, line, its new text."""

    emptied: tuple[tuple[int, int, int], ...] = ()
    replaced: tuple[tuple[int, int, str], ...] = ()

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> Self:
        """Return the changes that were stored with a submission."""
        return cls(tuple(map(tuple, data["emptied"])), tuple(map(tuple, data["replaced"])))

    def apply(self, cells: Sequence[str]) -> list[str]:
        """Return the cells with these changes."""
        texts = [text.split("\n") for text in cells]
        for cell, first, last in self.emptied:
            texts[cell - 1][first - 1 : last] = [""] * (last - first + 1)
        for cell, line, text in self.replaced:
            texts[cell - 1][line - 1] = text
        return ["\n".join(lines) for lines in texts]


SUFFIXES = (".py", ".ipynb", ".zip")
SCRIPT = "submission.py"  # what a lone file is called


@dataclass(frozen=True, kw_only=True)
class PackageLimits(ArchiveLimits):
    """What a package may hold once unpacked."""

    source_bytes: int = SOURCE_MIB << 20  # one Python file
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
    libraries: str = "",
    task: str = "",
    sources_only: bool = False,
) -> Package:
    """Return the checked package in `data`. Raises InvalidSubmission naming file, line and what is allowed.

    modes: what may be done with a notebook; where both may, each run runs it by itself.
    libraries: the set of older libraries that the competition names; "" for the worker's own.
    task: the name of the task that it is for; its file, `<task>.py` at a zip's top, goes before the usual one.
    sources_only: check the other files of a zip as well, but keep them empty.
    """
    if not data:
        raise refused("file", "is empty")
    kind = _kind(filename)
    if kind == "zip":
        _check_function_mode(filename, modes=modes)
    source = _read(data, filename, kind=kind, limits=limits, sources_only=sources_only)
    if source.cells is not None:
        mode = _mode(source.cells, filename, modes=modes)
        entry_point = entry_point_of_notebook(source.cells, mode=mode, shown_as=filename, libraries=libraries)
        return Package(kind, notebook.list_files(source.cells), entry_point)
    _check_function_mode(filename, modes=modes)
    shown_as = filename if kind == "py" else None
    return _plain_package(kind, source.files, shown_as=shown_as, libraries=libraries, task=task)


def accepted_files(data: bytes, filename: str, entry_point: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the files of a submission that was accepted, as they were then; nothing of it is judged again.

    entry_point: as it was stored then.
    """
    kind = _kind(filename)
    is_script = kind == "py" and entry_point.get("file") != notebook.ENTRY_FILE  # not taken for an export then
    source = _Source({SCRIPT: data}) if is_script else _read(data, filename, kind=kind, limits=LIMITS)
    if source.cells is None:
        is_as_then = entry_point["file"] in source.files
        return _without_guards(source.files if is_as_then else without_folder(source.files), entry_point)
    edits = entry_point.get("edits")
    return notebook.list_files(LineEdits.of_data(edits).apply(source.cells) if edits else source.cells)


def as_it_is_run(data: bytes, filename: str, entry_point: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry point of a submission that was accepted; of a notebook without stored edits, as it is today.

    Earlier versions cut such a notebook up at each run. Now each run runs it as it is.
    """
    found = dict(entry_point)
    is_notebook = found.get("file") == notebook.ENTRY_FILE and found.get("mode", "function") == "function"
    if not is_notebook or found.get("edits") or "program" in found:
        return found
    cells = _read(data, filename, kind=_kind(filename), limits=LIMITS).cells or []
    return found | {"program": "saves" if notebook.saves_models([parse_python(cell) for cell in cells]) else "defines"}


def _without_guards(files: Mapping[str, bytes], entry_point: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the files without the lines that an earlier version left out: they gave up where there is no GPU."""
    found = dict(files)
    for part in entry_point.get("left_out", ()):
        where = re.fullmatch(r"in (.+): .*", part["reason"])
        name = where[1] if where else entry_point["file"]
        lines = found[name].split(b"\n")
        first, last = part["first_line"], part["last_line"]
        lines[first - 1 : last] = [b""] * (last - first + 1)
        found[name] = b"\n".join(lines)
    return found


@dataclass(frozen=True)
class _Source:
    """An upload: files, or the code cells of a notebook."""

    files: dict[str, bytes]
    cells: list[str] | None = None


def _kind(filename: str) -> str:
    suffix = PurePosixPath(filename).suffix.lower()
    if suffix not in SUFFIXES:
        raise refused("file", f"needs a name that ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}", filename)
    return suffix[1:]


def _read(data: bytes, filename: str, *, kind: str, limits: PackageLimits, sources_only: bool = False) -> _Source:
    if kind == "zip":
        return _Source(read_zip(data, limits=limits, sources_only=sources_only))
    if kind == "ipynb":
        if len(data) > limits.notebook_bytes:
            raise refused("file", f"is too large: a notebook has at most {limits.notebook_bytes} bytes", str(len(data)))
        return _Source({}, notebook.code_cells(data, shown_as=filename))
    if len(data) > limits.source_bytes:
        raise refused("file", f"is too large: a Python file has at most {limits.source_bytes} bytes", str(len(data)))
    cell = notebook.cell_of_export(data)
    return _Source({SCRIPT: data}) if cell is None else _Source({}, [cell])


def _plain_package(kind: str, files: dict[str, bytes], *, shown_as: str | None, libraries: str, task: str) -> Package:
    entry_point = find_entry_point(files, shown_as=shown_as, task=task)
    required = decode_text(files.get(f"{common_folder(list(files))}{REQUIREMENTS}", b""), errors="replace")
    notes = unmet_requirements(required, libraries=libraries)
    return Package(kind, files, replace(entry_point, notes=notes))


def _check_function_mode(filename: str, *, modes: Sequence[Mode]) -> None:
    if "function" not in modes:
        raise refused(
            "file", "cannot be taken: this competition takes only notebooks with a loop of their own", filename
        )


def _mode(cells: Sequence[str], filename: str, *, modes: Sequence[Mode]) -> Mode:
    asked = notebook.mode_said_in(cells, shown_as=filename)
    if asked is not None and asked not in modes:
        raise refused("file", f"asks for the mode {asked}; this competition allows {', '.join(modes)}", filename)
    return asked or ("function" if "function" in modes else "notebook")


def read_zip(data: bytes, *, limits: PackageLimits = LIMITS, sources_only: bool = False) -> dict[str, bytes]:
    """Return the files of a zip; a folder around all of them is kept only if it is a package.

    Raises InvalidSubmission. sources_only: the others are checked, and come empty.
    """
    with checked_archive(io.BytesIO(data), limits=limits) as (archive, entries):
        _check_sources(entries, limits=limits)
        files = {}
        for entry in entries:
            keep = is_source(entry.filename) or not sources_only
            files[entry.filename] = b"".join(chunk for chunk in read_chunks(archive, entry) if keep)
    return files if _is_package(files) else without_folder(files)


def without_folder(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files without the folder that all of them lie in."""
    folder = common_folder(list(files))
    return {name.removeprefix(folder): content for name, content in files.items()}


def _is_package(files: Mapping[str, bytes]) -> bool:
    """Return whether the folder that all files lie in is a package: it says so, or code imports by its name or dots."""
    folder = common_folder(list(files))
    name = folder.rstrip("/")
    if not name or "." in name:
        return False
    own = re.escape(name.encode())
    return f"{folder}__init__.py" in files or any(
        re.search(rb"^[ \t]*(from[ \t]+(\.{%d}|%b\b)|import[ \t]+%b\b)" % (path.count("/"), own, own), content, re.M)
        for path, content in files.items()
        if path.endswith(".py")
    )


def _check_sources(entries: Sequence[zipfile.ZipInfo], *, limits: PackageLimits) -> None:
    sources = [entry for entry in entries if is_source(entry.filename)]
    for entry in sources:
        if entry.file_size > limits.source_bytes:
            raise refused(entry.filename, f"is too large: a Python file has at most {limits.source_bytes} bytes")
    total = sum(entry.file_size for entry in sources)
    if total > limits.all_source_bytes:
        raise refused("file", f"holds more than {limits.all_source_bytes} bytes of Python", str(total))


def is_source(name: str) -> bool:
    """Return whether a file says what is run, or how: what is read of a package to check it."""
    return name.endswith(".py") or name.rsplit("/", 1)[-1] in (DESCRIPTION, REQUIREMENTS)
