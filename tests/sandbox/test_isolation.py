"""Nothing that one run does can be seen by the next, and nothing outlives the launcher."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from sandbox.anonymous_view import NeutralView, remove_left_views
from sandbox.cgroups import GroupRoots, RunGroup, find_roots, remove_leftovers
from sandbox.launcher import RunRequest, Sandbox
from sandbox.policy import RunPolicy
from tests.support.kernel_cgroups import private_roots

from .conftest import is_living, write_submission

Found = TypeVar("Found")

# Each part looks, then leaves something; looking a second time must show what it showed at first.
PARTS = {
    "files": """
        import os
        seen = [sorted(os.listdir(folder)) for folder in ("/scratch", "/tmp", "/dev/shm")]
        open("/scratch/a", "w").write("left"), open("/dev/shm/b", "w").write("left")
    """,
    "memory": """
        import builtins, sys
        from sandbox.guest import harness
        seen = [hasattr(builtins, "left"), hasattr(harness, "left"), "left" in sys.modules]
        builtins.left = harness.left = sys.modules["left"] = 1
    """,
    "the data in memory": """
        batch = next(iter(torch.utils.data.DataLoader(retain.dataset, batch_size=60)))
        seen = [float(batch["image"].sum()), float(sum(p.sum() for p in net.parameters()))]
        retain.dataset.inputs(slice(None)).zero_()
        for tensor in (*net.state_dict().values(), retain.dataset.stored.labels):
            tensor.zero_()
    """,
    "environment": """
        import os
        seen = sorted(os.environ)
        os.environ["LEFT"] = "1"
    """,
    "semaphores": """
        import multiprocessing, os
        seen = sorted(os.listdir("/dev/shm"))
        lock = multiprocessing.get_context("fork").Lock()
        import _posixshmem
        os.close(_posixshmem.shm_open("/left", os.O_CREAT | os.O_RDWR, 0o600))
    """,
    "descriptors": """
        import os
        seen = sorted(os.listdir("/proc/self/fd"), key=int)
        kept = [os.open("/data/network.json", os.O_RDONLY) for _ in range(5)]
    """,
    "affinity and priority": """
        import os
        seen = [sorted(os.sched_getaffinity(0)), os.getpriority(os.PRIO_PROCESS, 0)]
        os.setpriority(os.PRIO_PROCESS, 0, 10)
        try:
            os.sched_setaffinity(0, {0})
        except OSError:
            pass
    """,
    "torch's settings and caches": """
        seen = [torch.get_num_threads(), torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled(),
                torch.is_grad_enabled(), torch.backends.mkldnn.enabled, hasattr(torch.nn.Linear, "left")]
        torch.set_num_threads(2), torch.set_default_dtype(torch.float64), torch.use_deterministic_algorithms(True)
        torch.set_grad_enabled(False)
        torch.backends.mkldnn.enabled = False
        torch.nn.Linear.left = 1
    """,
    "random state": """
        import random, numpy
        seen = [random.random(), float(numpy.random.rand()), float(torch.rand(())), hash("left")]
        for _ in range(1000):
            random.random(), torch.rand(3)
    """,
    "processes": """
        import os, time
        seen = [os.getpid(), [name for name in os.listdir("/proc") if name.isdigit()]]
        if os.fork() == 0:
            os.setsid()
            time.sleep(60)
    """,
    "limits and signals": """
        import resource, signal
        seen = [resource.getrlimit(name) for name in range(16) if name != resource.RLIMIT_DATA]
        seen += [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)]
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    """,
}


@pytest.mark.parametrize("part", PARTS)
def test_second_run_sees_what_the_first_saw(sandbox: Sandbox, stage: Path, part: str) -> None:
    lines = textwrap.indent(textwrap.dedent(PARTS[part]), "    ")
    source = f"import torch\n\n\ndef unlearning(net, retain, forget, validation):{lines}\n    print(seen, flush=True)\n"
    folder = write_submission(stage, f"part-{list(PARTS).index(part)}", source)
    first, second = (sandbox.run(RunRequest(code_dir=folder, seed=4, kind="sample")) for _ in range(2))
    assert b"[" in first.log, first.log
    assert first.log == second.log


LAUNCHER = """
import sys
from pathlib import Path
from sandbox.launcher import Launcher, RunRequest, SandboxSpec
from sandbox.policy import RunPolicy
spec = SandboxSpec(data_dir=Path(sys.argv[1]), stage_dir=Path(sys.argv[2]), policy=RunPolicy(idle_time_s=None))
with Launcher(spec).start() as sandbox:
    print("started", flush=True)
    sandbox.run(RunRequest(code_dir=Path(sys.argv[3])))
"""


def test_killed_launcher_leaves_no_process(split: Path, stage: Path) -> None:
    source = "import os, time\ndef unlearning(*a):\n    os.fork()\n    os.setsid() if os.getpid() > 1 else 0\n"
    folder = write_submission(stage, "endless-tree", source + "    while True: time.sleep(0.1)\n")
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(split), str(stage), str(folder)], stdout=subprocess.PIPE
    )
    with launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == b"started\n"
        descendants = _wait_until(lambda: found if len(found := _descendants(launcher.pid)) >= 4 else None)
        assert descendants
        launcher.kill()
    assert _wait_until(lambda: not [pid for pid in descendants if is_living(pid)] or None)
    roots = find_roots()
    remove_leftovers(roots)
    groups = [group for folder in roots.folders.values() for group in folder.glob(f"lethe-sandbox-{launcher.pid}-*")]
    assert not groups


@pytest.fixture
def roots() -> Iterator[GroupRoots]:
    """Groups in which no launcher of another test process leaves anything, or removes what a killed one left."""
    found = find_roots()
    if not found.version:
        pytest.skip("no control group can be made here: not root, and none delegated")
    with private_roots(found) as made:
        yield made


def test_group_of_a_dead_launcher_is_emptied_and_removed(roots: GroupRoots) -> None:
    sleeper = subprocess.Popen(["sleep", "600"], start_new_session=True)
    code = (
        "import os, sys\nfrom sandbox.cgroups import *\nfrom sandbox.policy import RunPolicy\n"
        "folders = {pair.split('=')[0]: Path(pair.split('=')[1]) for pair in sys.argv[3:]}\n"
        "RunGroup(GroupRoots(int(sys.argv[2]), folders), RunPolicy(), name='x').add(int(sys.argv[1]))\n"
        "os.kill(os.getpid(), 9)"
    )
    folders = [f"{controller}={folder}" for controller, folder in roots.folders.items()]
    subprocess.run([sys.executable, "-c", code, str(sleeper.pid), str(roots.version), *folders], check=False)
    assert len(remove_leftovers(roots)) == 1
    assert sleeper.wait(timeout=60) == -signal.SIGKILL
    assert remove_leftovers(roots) == []


def test_group_of_a_living_launcher_is_left_alone(roots: GroupRoots) -> None:
    group = RunGroup(roots, RunPolicy(), name="living")
    try:
        assert remove_leftovers(roots) == []
    finally:
        group.close()


def _wait_until(look: Callable[[], Found | None], *, timeout_s: float = 60) -> Found | None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if (found := look()) is not None:
            return found
        time.sleep(0.05)
    return None


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    waiting = [pid]
    while waiting:
        path = Path(f"/proc/{waiting.pop()}/task")
        try:
            children = [int(pid) for thread in path.iterdir() for pid in (thread / "children").read_text().split()]
        except OSError:
            continue
        found += children
        waiting += children
    return found


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
