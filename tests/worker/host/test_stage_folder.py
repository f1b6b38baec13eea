"""Staging folders of processes that are gone are removed, those of the living never."""

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

from worker.host.stage_folder import own_folder


def _hold(parent: Path, ready: Any) -> None:
    folder = own_folder(parent)
    code = folder / "0123" / "package"
    code.mkdir(parents=True)
    (code / "submission.py").write_text("x = 1")
    code.chmod(0o555)
    ready.put(folder.name)
    signal.pause()


def start(parent: Path) -> tuple[Any, str]:
    context = multiprocessing.get_context("fork")
    ready = context.SimpleQueue()
    process = context.Process(target=_hold, args=(parent, ready))
    process.start()
    return process, ready.get()


def test_folder_of_a_killed_process_is_removed_and_that_of_a_living_one_stays(tmp_path: Path) -> None:
    living, living_name = start(tmp_path)
    killed, killed_name = start(tmp_path)
    try:
        os.kill(killed.pid, signal.SIGKILL)
        killed.join()
        assert (tmp_path / killed_name).is_dir()
        mine = own_folder(tmp_path)
        assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {living_name, mine.name}
        assert (tmp_path / living_name / "0123" / "package" / "submission.py").is_file()
    finally:
        living.kill()
        living.join()


def test_process_keeps_its_folder(tmp_path: Path) -> None:
    assert own_folder(tmp_path) == own_folder(tmp_path)
