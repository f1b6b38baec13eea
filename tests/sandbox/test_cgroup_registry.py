"""Groups that a launcher left anywhere are found by its record; records of the living, and false ones, do nothing."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.cgroups import RECORDS, GroupRoots, keep_record, owner_mark, remove_recorded_leftovers
from sandbox.launcher import Sandbox
from tests.support.kernel_cgroups import kernels_own

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="root alone keeps records")


@pytest.fixture
def records(tmp_path: Path) -> Path:
    return tmp_path / "records"


@pytest.fixture
def gone() -> str:
    """The mark of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return f"{process.pid}-1"


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A control group in which no launcher of these tests makes its own."""
    roots = next(iter(kernels_own().values()), None)
    if roots is None:
        pytest.skip("no control group can be made here")
    folder = next(iter(roots.folders.values())) / f"lethe-test-{os.getpid()}"
    folder.mkdir()
    yield folder
    folder.rmdir()


def test_recorded_leftover_groups_are_removed(elsewhere, records, gone, busy):
    records.mkdir(mode=0o700)
    (records / gone).write_text(str(elsewhere), encoding="utf-8")
    left, kept = elsewhere / f"lethe-sandbox-{gone}-left", elsewhere / f"lethe-sandbox-{owner_mark()}-mine"
    left.mkdir()
    kept.mkdir()
    try:
        (left / "cgroup.procs").write_text(str(busy.pid), encoding="ascii")
        assert remove_recorded_leftovers(records=records) == [left.name]
        assert busy.wait(timeout=60) == -9
        assert not left.exists()
        assert kept.exists()
        assert list(records.iterdir()) == []
    finally:
        kept.rmdir()
        if left.exists():
            busy.kill()
            busy.wait()
            left.rmdir()


def test_record_of_a_living_launcher_stays(records: Path, tmp_path: Path) -> None:
    keep_record(GroupRoots(version=1, folders={"memory": tmp_path}), records=records)
    assert remove_recorded_leftovers(records=records) == []
    assert [path.read_text(encoding="utf-8") for path in records.iterdir()] == [str(tmp_path)]


def test_record_that_names_no_control_group_touches_nothing(records: Path, tmp_path: Path, gone: str) -> None:
    mine = tmp_path / f"lethe-sandbox-{gone}-x"
    mine.mkdir()
    records.mkdir(mode=0o700)
    (records / gone).write_text(str(tmp_path), encoding="utf-8")
    assert remove_recorded_leftovers(records=records) == []
    assert mine.is_dir()


def test_folder_that_others_may_write_to_is_not_read(elsewhere: Path, records: Path, gone: str) -> None:
    records.mkdir()
    records.chmod(0o777)
    (records / gone).write_text(str(elsewhere), encoding="utf-8")
    left = elsewhere / f"lethe-sandbox-{gone}-left"
    left.mkdir()
    try:
        assert remove_recorded_leftovers(records=records) == []
        assert left.exists()
    finally:
        left.rmdir()


def test_sandbox_writes_down_where_its_groups_are(sandbox: Sandbox) -> None:
    if not kernels_own():
        pytest.skip("no control group can be made here")
    places = (RECORDS / owner_mark()).read_text(encoding="utf-8").splitlines()
    assert set(places) == {str(folder) for folder in sandbox._roots.folders.values()}
