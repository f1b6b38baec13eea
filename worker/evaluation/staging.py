"""Submissions, unpacked where a sandbox can be shown them, each in its own folder."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lethe.submission.package import accepted_files
from server.evaluations.claimed_shard import ClaimedShard


@contextmanager
def staged(shard: ClaimedShard, data: bytes, stage_dir: Path) -> Iterator[Path]:
    """Yield a folder with the submission's files, readable by all and writable by nobody; removed afterwards."""
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
        _open_for_removal(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _open_for_reading(folder: Path) -> None:
    for base, _folders, names in os.walk(folder, topdown=False):
        for name in names:
            Path(base, name).chmod(0o444)
        Path(base).chmod(0o555)


def _open_for_removal(folder: Path) -> None:
    for base, _folders, _names in os.walk(folder):
        Path(base).chmod(0o755)
