"""Control groups: version 2 against files like the kernel's, and whatever this machine has against itself."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.cgroups import GroupRoots, RunGroup, find_roots, remove_leftovers
from sandbox.policy import RunPolicy
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
