"""Files of the host that a confined process reads, and folders that are its own while it lives.

Root shows files to the user that it drops to, and lends that user the folders. What comes back is looked through
before anybody trusted follows a name in it: a link could lead to any file of the host.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from sandbox.host_files import open_to_others

_MIB = 1024 * 1024


class GuestFiles:
    """Lends folders to a process's user, and takes them back. removed: names of what was not let back."""

    def __init__(self, reads: Iterable[Path], writes: Iterable[Path], *, uid: int | None) -> None:
        """uid: whom root drops to; None where the caller is not root and stays who it is."""
        self._reads, self._writes, self._uid = tuple(reads), tuple(writes), uid
        self.removed: list[str] = []

    def __enter__(self) -> Self:
        if self._uid is not None:
            for path in self._reads:
                open_to_others((path, *path.rglob("*")) if path.is_dir() else (path,))
            for path in self._all_written():
                os.chown(path, self._uid, self._uid, follow_symlinks=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the folders back; the process must be gone."""
        for path in sorted(self._all_written(), key=lambda found: len(found.parts)):
            mode = path.lstat().st_mode
            if not stat.S_ISDIR(mode) and not (stat.S_ISREG(mode) and path.lstat().st_nlink == 1):
                path.unlink()
                self.removed.append(path.name)
                continue
            if self._uid is not None:
                os.chown(path, os.geteuid(), os.getegid(), follow_symlinks=False)
            path.chmod(0o755 if stat.S_ISDIR(mode) else 0o644)

    def written_mib(self) -> float:
        """Return the size of what lies in the folders that are lent."""
        total = 0
        for path in self._all_written():
            try:
                total += path.lstat().st_blocks * 512
            except OSError:
                continue  # gone meanwhile
        return total / _MIB

    def _all_written(self) -> Iterator[Path]:
        """Yield the folders and all in them; no link is followed."""
        for folder in self._writes:
            yield folder
            for place, folders, files in os.walk(folder):
                yield from (Path(place, name) for name in (*folders, *files))
