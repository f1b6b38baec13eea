"""Files for downloads: rows as JSON, zip archives with the hash of each file, and a place on disk for them.

What is on this host's disk before it is sent lets a slow reader hold no database connection.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from tempfile import TemporaryFile
from typing import IO, Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

CHUNK_BYTES = 1 << 16


def plain(value: Any) -> Any:
    """Return a value of a row as JSON holds it: dates as ISO 8601, bytes as base64."""
    if isinstance(value, datetime):
        return value.isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def plain_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as JSON holds it."""
    return {name: plain(value) for name, value in row.items()}


def json_line(row: Mapping[str, Any]) -> str:
    """Return a row as a line of JSON."""
    return json.dumps(plain_row(row), ensure_ascii=False) + "\n"


@dataclass
class HashedZip:
    """The archive and its entries. at: the date of every file."""

    zip: ZipFile
    at: datetime
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, name: str, pieces: Iterable[bytes], *, compress: bool) -> None:
        """Add one file piece by piece."""
        info = ZipInfo(name, date_time=self.at.timetuple()[:6])
        info.compress_type = ZIP_DEFLATED if compress else ZIP_STORED
        digest, size = hashlib.sha256(), 0
        with self.zip.open(info, "w", force_zip64=True) as entry:
            for piece in pieces:
                digest.update(piece)
                size += len(piece)
                entry.write(piece)
        self.entries[name] = {"sha256": digest.hexdigest(), "bytes": size}


def spool(write: Callable[[IO[bytes]], None]) -> Iterator[bytes]:
    """Return piece by piece what `write` writes into a temporary file. It is written when this returns."""
    with ExitStack() as stack:
        file = stack.enter_context(TemporaryFile())
        write(file)
        file.seek(0)
        stack.pop_all()  # closed when it was read, or by nobody's reading it
    return _pieces(file)


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while piece := file.read(CHUNK_BYTES):
            yield piece
