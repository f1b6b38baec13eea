"""Where a run's data seems to lie says nothing of it: links under a random name, gone with the sandbox."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.anonymous_view import NeutralView, remove_left_views
from sandbox.launcher import Launcher, RunRequest, SandboxSpec
from tests.sandbox.conftest import MOUNTS

from .conftest import TEST_POLICY, write_split, write_submission

TELLING = ("split", "digits", "private", "public", "visible", "competition", "storage")


def list_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_mount_folders_have_neutral_names_in_every_zygote(tmp_path_factory: pytest.TempPathFactory) -> None:
    home = tmp_path_factory.mktemp("h")
    data_dir = write_split(home / "storage" / "splits" / "digits" / "private" / "visible")
    stage, shown = home / "stage" / "4242", home / "shown"
    stage.mkdir(parents=True)
    code = write_submission(stage, "0123456789abcdef", MOUNTS)
    spec = SandboxSpec(data_dir=data_dir, stage_dir=stage, policy=TEST_POLICY, neutral_dirs=(shown,))
    with Launcher(spec).start() as sandbox:
        result = sandbox.run(RunRequest(code_dir=code, kind="sample"))
        assert result.weights is not None, result.facts.host_error
        (inside,) = [path for path in shown.iterdir() if path.is_dir()]
        same = inside / "retain.safetensors"
        assert same.stat().st_ino == (data_dir / "retain.safetensors").stat().st_ino, "linked, not copied"
        sandbox._give_up_link()
        again = sandbox.run(RunRequest(code_dir=code, kind="sample"))
        assert again.weights == result.weights
    roots, roots_again = (
        {target: root for root, target in (line.split() for line in log.decode().splitlines())}
        for log in (result.log, again.log)
    )
    assert roots["/data"] == roots_again["/data"]
    assert roots["/data"].endswith(f"/{inside.name}")
    own = [root for root in roots.values() if str(home.name) in root]
    assert len(own) >= 2, roots  # the data and the code
    assert not [root for root in own for word in TELLING if word in root.split(home.name)[1]]
    assert list(shown.iterdir()) == []
    assert sorted(list_files(data_dir)) == sorted(path.name for path in data_dir.iterdir())


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
