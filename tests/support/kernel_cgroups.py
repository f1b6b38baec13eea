"""The control groups that this machine's kernel has for tests."""

import time
from pathlib import Path

from sandbox.cgroups import GroupRoots, find_roots


def kernels_own() -> dict[str, GroupRoots]:
    """What this machine's kernel has: the groups that sandboxes use, and version 2 with whatever it controls."""
    found = {"in use": find_roots()} if find_roots().version else {}
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        _source, folder, kind, options, *_ = line.split()
        if kind == "cgroup2" and "rw" in options.split(",") and _can_make_groups(Path(folder)):
            found["version 2"] = GroupRoots(version=2, folders={"cpu": Path(folder)})
    return found


def _can_make_groups(folder: Path) -> bool:
    trial = folder / f"lethe-test-{time.monotonic_ns()}"
    try:
        trial.mkdir()
    except OSError:
        return False
    trial.rmdir()
    return True
