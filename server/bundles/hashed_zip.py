"""A zip archive that is being written, with the size and the SHA-256 of each of its files."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo


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
