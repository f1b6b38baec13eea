"""The control groups that this machine's kernel has for tests."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
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


@contextmanager
def private_roots(roots: GroupRoots) -> Iterator[GroupRoots]:
    """Yield places of a test's own below `roots`: beside those, other test processes make and remove groups, too."""
    name = f"lethe-test-{os.getpid()}-{time.monotonic_ns()}"
    folders = {controller: folder / name for controller, folder in roots.folders.items()}
    try:
        for folder in set(folders.values()):
            folder.mkdir()
            if roots.version == 2:
                with suppress(OSError):  # a version 2 beside version 1 has no controllers
                    (folder / "cgroup.subtree_control").write_text("+memory +pids", encoding="ascii")
        yield replace(roots, folders=folders)
    finally:
        for folder in set(folders.values()):
            folder.rmdir()


def _can_make_groups(folder: Path) -> bool:
    trial = folder / f"lethe-test-{time.monotonic_ns()}"
    try:
        trial.mkdir()
    except OSError:
        return False
    trial.rmdir()
    return True
