"""Control groups: version 2 against files like the kernel's, and whatever this machine has against itself."""

from pathlib import Path

import pytest

from sandbox.cgroups import GroupRoots, RunGroup, find_roots
from sandbox.policy import RunPolicy

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


def test_version_2_limits_memory_without_swap_and_counts_processes(v2_group: RunGroup, tmp_path: Path) -> None:
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
    roots = find_roots()
    if not roots.version:
        pytest.skip("no control group can be made here: not root, and none delegated")
    before = [sorted(folder.iterdir()) for folder in roots.folders.values()]
    group = RunGroup(roots, POLICY, name="trial")
    assert group.usage().oom_kills == 0
    group.close()
    assert [sorted(folder.iterdir()) for folder in roots.folders.values()] == before


def test_folder_outside_the_hierarchy_is_not_taken_for_a_delegated_group(tmp_path: Path) -> None:
    assert tmp_path not in find_roots(tmp_path).folders.values()
