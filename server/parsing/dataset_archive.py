"""An uploaded dataset is a zip of plain files. Only the parsing process calls this: see `server.parsing.tasks`."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from lethe.errors import InvalidInput, InvalidSubmission
from lethe.submission.archive import ArchiveLimits, Opened, checked_archive, common_folder, read_chunks, refused

MAX_FILES = 60_000  # below what a zip without a zip64 directory can hold
TABLE_SUFFIXES = (".csv", ".txt", ".json")
MAX_TABLE_BYTES = 64 << 20  # tables are read into memory as a whole, pictures and arrays are not


@dataclass(frozen=True)
class Content:
    """What a dataset's archive holds, unpacked."""

    files: int
    unpacked_bytes: int


def check(file: IO[bytes], *, limits: Mapping[str, int]) -> Content:
    """Read every file of the archive once. Raises InvalidInput naming the file and what is allowed.

    limits: `files` and `unpacked_bytes`.
    """
    with opened(file, limits) as (archive, entries):
        for entry in entries:
            for _ in read_chunks(archive, entry):
                pass
        return Content(len(entries), sum(entry.file_size for entry in entries))


def unpack(file: IO[bytes], folder: Path, *, limits: Mapping[str, int]) -> None:
    """Write every file of the archive below a folder that is there and empty. Raises InvalidInput as `check` does."""
    with opened(file, limits) as (archive, entries):
        top = common_folder([entry.filename for entry in entries])
        for entry in entries:
            path = folder / entry.filename.removeprefix(top)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as target:  # nothing is there yet, and so no link
                for chunk in read_chunks(archive, entry):
                    target.write(chunk)


@contextmanager
def opened(file: IO[bytes], limits: Mapping[str, int]) -> Iterator[Opened]:
    """Yield a dataset's archive and its files. Raises InvalidInput as `check` does."""
    try:
        with checked_archive(file, limits=ArchiveLimits(ratio_from_bytes=16 << 20, **limits)) as (archive, entries):
            if not entries:
                raise refused("file", "holds no files")
            for entry in entries:
                if entry.filename.lower().endswith(TABLE_SUFFIXES) and entry.file_size > MAX_TABLE_BYTES:
                    raise refused(entry.filename, f"a table has at most {MAX_TABLE_BYTES} bytes", str(entry.file_size))
            yield archive, entries
    except InvalidSubmission as error:
        raise InvalidInput(error.detail, violations=error.violations) from error
