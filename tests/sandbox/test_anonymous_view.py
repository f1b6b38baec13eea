"""Where a run's data seems to lie says nothing of it: links under a random name, gone with the sandbox."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.anonymous_view import NeutralView, remove_left_views


def list_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_views_of_a_killed_launcher_are_removed(split: Path, tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from sandbox.anonymous_view import NeutralView\n"
        "view = NeutralView(Path(sys.argv[1]), [Path(sys.argv[2])]); print('made', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program, split, tmp_path], stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"made\n"
        mine = NeutralView(split, [tmp_path])
        remove_left_views([tmp_path])
        assert len(list(tmp_path.iterdir())) == 4, "two views and their locks, both in use"
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    remove_left_views([tmp_path, tmp_path / "missing"])
    assert {path.stem for path in tmp_path.iterdir()} == {mine.folder.name}
    assert list_files(mine.folder) == list_files(split)
    mine.close()
    assert list(tmp_path.iterdir()) == []


def test_data_on_another_file_system_is_linked_there_or_copied(split: Path, tmp_path: Path) -> None:
    other = Path("/dev/shm")
    if not os.access(other, os.W_OK) or other.stat().st_dev == split.stat().st_dev:
        pytest.skip("this machine has no second file system to write to")
    far = other / f"lethe-test-{os.getpid()}"
    beside = NeutralView(split, [far, tmp_path])
    copied = NeutralView(split, [far])
    try:
        assert beside.folder.parent == tmp_path
        assert copied.folder.parent == far
        assert list_files(copied.folder) == list_files(beside.folder) == list_files(split)
    finally:
        beside.close()
        copied.close()
        far.rmdir()
