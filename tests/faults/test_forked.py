"""Processes of a fault test end with it, however it ends, and theirs with them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import forked
from tests.faults.cluster import wait_until

pytestmark = pytest.mark.slow

FAMILY = """
import os, pathlib, signal
pids = pathlib.Path({pids!r})
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = os.fork()
if child:
    pids.with_suffix(".new").write_text(f"{{os.getpid()}} {{child}}")
    pids.with_suffix(".new").rename(pids)
signal.pause()
"""
TEST = """
import os, signal, sys
from pathlib import Path
from tests.faults import forked
forked.LIBRARIES.clear()  # importing them is not part of this
forked.start("parent", sys.argv[1], [], environment=dict(os.environ), log=Path(sys.argv[2]))
signal.pause()
"""


@pytest.fixture
def pids(tmp_path: Path) -> Path:
    """The file that a process of `tests.faults` writes its own id and its child's to."""
    (tmp_path / "family.py").write_text(FAMILY.format(pids=str(tmp_path / "pids")))
    return tmp_path / "pids"


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("killed", ["test", "parent"])
def test_child_ends_with_its_parent_and_with_the_test(pids: Path, tmp_path: Path, killed: str) -> None:
    path = os.pathsep.join([str(tmp_path), str(Path(forked.__file__).parents[2])])
    command = [sys.executable, "-c", TEST, "family", str(tmp_path / "log")]
    with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}) as test:
        family: list[int] = []
        try:
            wait_until(pids.exists)
            family += [int(pid) for pid in pids.read_text().split()]
            assert all(alive(pid) for pid in family)
            os.kill(test.pid if killed == "test" else family[0], signal.SIGKILL)
            wait_until(lambda: not any(alive(pid) for pid in family), within_s=30)
        finally:
            test.kill()
            for pid in filter(alive, family):
                os.kill(pid, signal.SIGKILL)
