"""A split's visible files in a folder whose name reveals nothing.

A run can read in /proc/self/mountinfo where in its file system each mount begins. So what it is shown begins in a
folder of a random name, made of hard links: no byte is copied where the file system is the same. A lock beside the
folder says that it is in use, in whatever container; views without one are what a killed launcher left.
"""

import fcntl
import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import IO


class NeutralView:
    """A folder with the files of another, until it is closed."""

    def __init__(self, source: Path, parents: Sequence[Path]) -> None:
        """Link the files in the first parent that takes links to them; where none does, copy them into the first.

        parents: made if they are missing. Raises OSError.
        """
        for parent in parents:
            self._new_folder(parent)
            try:
                shutil.copytree(source, self.folder, copy_function=os.link)
            except (OSError, shutil.Error):  # another file system, or somebody else's files
                self.close()
            else:
                return
        self._new_folder(parents[0])
        try:
            shutil.copytree(source, self.folder, copy_function=shutil.copyfile)
        except BaseException:
            self.close()
            raise

    def refresh_times(self) -> None:
        """Make the files look as if they had been written just now, so that they do not tell how long runs took."""
        for path in (self.folder, *self.folder.rglob("*")):
            os.utime(path)

    def close(self) -> None:
        """Remove the folder; the files that it was made of stay."""
        shutil.rmtree(self.folder, ignore_errors=True)
        _lock_for(self.folder).unlink(missing_ok=True)
        self._lock.close()

    def _new_folder(self, parent: Path) -> None:
        parent.mkdir(parents=True, exist_ok=True)
        while True:
            self.folder = parent / secrets.token_hex(8)
            self._lock: IO[bytes] = _lock_for(self.folder).open("xb")
            fcntl.flock(self._lock, fcntl.LOCK_SH)
            if os.fstat(self._lock.fileno()).st_nlink:
                return
            self._lock.close()  # another took it for a killed launcher's, before it was locked


def remove_left_views(parents: Sequence[Path]) -> None:
    """Remove the views that no process holds."""
    for parent in parents:
        for path in parent.glob("*.lock"):
            try:
                with path.open("rb") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path.with_suffix(""), ignore_errors=True)
                    path.unlink(missing_ok=True)
            except (FileNotFoundError, BlockingIOError):
                continue


def _lock_for(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")
