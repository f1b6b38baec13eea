"""The folder in which a process unpacks submissions: its own as long as it lives, and removed by others afterwards.

A process id is not enough of a name: workers in containers of their own share the scratch volume and number their
processes alike. Each folder is locked by its process instead, and a lock ends with it, however it ends.
"""

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

import structlog

from lethe.submission.package import accepted_files
from server.evaluations.claimed_shard import ClaimedShard

log = structlog.get_logger()


def own_folder(parent: Path) -> Path:
    """Return this process's folder below `parent`, made at the first call, when abandoned ones are removed."""
    return _own_folder(parent, os.getpid())


@lru_cache(maxsize=4)
def _own_folder(parent: Path, pid: int) -> Path:
    parent.mkdir(parents=True, exist_ok=True)
    with (parent / ".lock").open("ab") as guard:  # no folder is looked at between its making and its locking
        fcntl.flock(guard, fcntl.LOCK_EX)
        for folder in parent.iterdir():
            if folder.is_dir() and is_abandoned(folder):
                log.info("abandoned staging folder removed", folder=folder.name)
                _remove(folder)
        made = parent / f"{pid}-{secrets.token_hex(4)}"
        made.mkdir()
        fcntl.flock(os.open(made, os.O_RDONLY), fcntl.LOCK_EX)  # held until the process ends
    return made


def is_abandoned(folder: Path) -> bool:
    """Return whether no process holds the folder any more."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return False  # another has just removed it
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _remove(folder: Path) -> None:
    for base, _folders, _names in os.walk(folder):
        with suppress(OSError):
            Path(base).chmod(0o755)  # code lies there readable by all and writable by nobody
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def staged(shard: ClaimedShard, data: bytes, stage_dir: Path) -> Iterator[Path]:
    """Yield a read-only folder with the submission's files; removed afterwards."""
    files = accepted_files(data, shard.filename, shard.entry_point)
    folder = stage_dir / secrets.token_hex(8)
    folder.mkdir(parents=True)
    try:
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        _open_for_reading(folder)
        yield folder
    finally:
        for base, _folders, _names in os.walk(folder):
            Path(base).chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)


def _open_for_reading(folder: Path) -> None:
    for base, _folders, names in os.walk(folder, topdown=False):
        for name in names:
            Path(base, name).chmod(0o444)
        Path(base).chmod(0o555)
