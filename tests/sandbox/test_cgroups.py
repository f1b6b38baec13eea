"""Control groups: version 2 against files like the kernel's, this machine's, records of leftovers; and without root."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.cgroups import (
    RECORDS,
    GroupRoots,
    RunGroup,
    find_roots,
    keep_record,
    owner_mark,
    remove_leftovers,
    remove_recorded_leftovers,
)
from sandbox.launcher import Sandbox
from sandbox.policy import RunPolicy
from tests.sandbox.hostile_suite import SAMPLE
from tests.support.kernel_cgroups import kernels_own, private_roots

POLICY = RunPolicy(memory_mib=100, processes=7)
V2_FILES = {
    "memory.max": "",
    "memory.swap.max": "",
    "memory.oom.group": "",
    "pids.max": "",
    "memory.peak": "52428800\n",
    "memory.events": "low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\n",
    "pids.events": "max 5\n",
    "cpu.stat": "usage_usec 1500000\nuser_usec 1\n",
}


@pytest.fixture
def v2_group(tmp_path: Path) -> RunGroup:
    roots = GroupRoots(version=2, folders=dict.fromkeys(("memory", "pids", "cpu"), tmp_path))
    group = RunGroup(roots, POLICY, name="x")
    (folder,) = tmp_path.iterdir()
    for name, content in V2_FILES.items():
        (folder / name).write_text(content, encoding="ascii")
    group._limit(POLICY)  # once more, now that the kernel's part is there
    return group


def test_version_2_limits_memory_and_counts_processes(v2_group: RunGroup, tmp_path: Path) -> None:
    (folder,) = tmp_path.iterdir()
    written = {name: (folder / name).read_text(encoding="ascii") for name in list(V2_FILES)[:4]}
    assert written == {
        "memory.max": str(100 * 1024 * 1024),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "pids.max": "7",
    }


def test_version_2_usage_is_read(v2_group: RunGroup) -> None:
    usage = v2_group.usage()
    assert (usage.cpu_time_s, usage.peak_memory_mib, usage.oom_kills, usage.refused_forks) == (1.5, 50.0, 2, 5)
    assert v2_group.counts_cpu_time


def test_group_on_this_machine_is_made_and_removed() -> None:
    found = find_roots()
    if not found.version:
        pytest.skip("no control group can be made here: not root, and none delegated")
    with private_roots(found) as roots:
        before = [sorted(folder.iterdir()) for folder in roots.folders.values()]
        group = RunGroup(roots, POLICY, name="trial")
        assert group.usage().oom_kills == 0
        group.close()
        assert [sorted(folder.iterdir()) for folder in roots.folders.values()] == before


def test_folder_outside_the_hierarchy_is_no_delegated_group(tmp_path: Path) -> None:
    assert tmp_path not in find_roots(tmp_path).folders.values()


@pytest.fixture(params=["in use", "version 2"])
def live_roots(request: pytest.FixtureRequest) -> Iterator[GroupRoots]:
    found = kernels_own().get(request.param)
    if found is None:
        pytest.skip(f"no control group of the kind {request.param!r} can be made here")
    with private_roots(found) as roots:
        yield roots


def test_live_group_counts_time_and_kills_what_is_in_it(live_roots: GroupRoots, busy: subprocess.Popen[bytes]) -> None:
    group = RunGroup(live_roots, POLICY, name="live")
    try:
        group.add(busy.pid)
        deadline = time.monotonic() + 60
        while group.cpu_time_s() < 0.05 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert group.cpu_time_s() >= 0.05
    finally:
        group.close()
    assert busy.wait(timeout=60) == -9
    assert not [path for folder in live_roots.folders.values() for path in folder.glob("lethe-sandbox-*-live")]


def test_groups_of_a_dead_launcher_are_removed(live_roots: GroupRoots, busy: subprocess.Popen[bytes]) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    folders = {folder / f"lethe-sandbox-{gone.pid}-1-left" for folder in live_roots.folders.values()}
    for folder in folders:
        folder.mkdir()
        (folder / "cgroup.procs").write_text(str(busy.pid), encoding="ascii")
    assert remove_leftovers(live_roots) == [f"lethe-sandbox-{gone.pid}-1-left"]
    assert busy.wait(timeout=60) == -9
    assert not any(folder.exists() for folder in folders)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="root alone keeps records")


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


@needs_root
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


@needs_root
def test_record_of_a_living_launcher_stays(records: Path, tmp_path: Path) -> None:
    keep_record(GroupRoots(version=1, folders={"memory": tmp_path}), records=records)
    assert remove_recorded_leftovers(records=records) == []
    assert [path.read_text(encoding="utf-8") for path in records.iterdir()] == [str(tmp_path)]


@needs_root
def test_record_that_names_no_control_group_touches_nothing(records: Path, tmp_path: Path, gone: str) -> None:
    mine = tmp_path / f"lethe-sandbox-{gone}-x"
    mine.mkdir()
    records.mkdir(mode=0o700)
    (records / gone).write_text(str(tmp_path), encoding="utf-8")
    assert remove_recorded_leftovers(records=records) == []
    assert mine.is_dir()


@needs_root
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


@needs_root
def test_sandbox_writes_down_where_its_groups_are(sandbox: Sandbox) -> None:
    if not kernels_own():
        pytest.skip("no control group can be made here")
    places = (RECORDS / owner_mark()).read_text(encoding="utf-8").splitlines()
    assert set(places) == {str(folder) for folder in sandbox._roots.folders.values()}


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="not root: the attacks run unprivileged already")
def test_without_root_attacks_end_as_they_must_and_a_strict_worker_refuses() -> None:
    """Both in one process of the other user. It waits until nobody else has the canaries: in this file, nobody has."""
    files = ("tests/sandbox/test_hostile.py", "tests/worker/host/test_sandbox_requirements.py")
    sandboxes_of_its_own = "test_controls_and_every_limit_are_stored_with_the_attempt"  # and nothing more to show
    wanted = f"({' or '.join(SAMPLE)} or good or test_sandbox_requirements) and not {sandboxes_of_its_own}"
    command = [sys.executable, "-m", "tests.sandbox.as_other_user", "pytest", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, *files, "-rA", "-k", wanted], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    passed = [line for line in done.stdout.splitlines() if line.startswith("PASSED")]
    assert len([line for line in passed if files[0] in line]) >= len(SAMPLE)
    assert any("test_worker_claims_nothing_and_tells_organisers_why" in line for line in passed)
    assert "this user may make control groups" not in done.stdout
