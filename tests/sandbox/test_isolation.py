"""A run sees nothing of the one before and cannot tell which one it is, and nothing outlives the launcher."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox.anonymous_view import NeutralView, remove_left_views
from sandbox.cgroups import GroupRoots, RunGroup, find_roots, remove_leftovers
from sandbox.launcher import Launcher, RunRequest, Sandbox, SandboxSpec
from sandbox.policy import RunPolicy
from tests.support.kernel_cgroups import private_roots
from tests.support.processes import descendants

from .conftest import TEST_POLICY, is_living, write_submission

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
        started = _wait_until(
            lambda: found if len(found := [pid for pid, _ in descendants(launcher.pid)]) >= 4 else None
        )
        assert started
        launcher.kill()
    assert _wait_until(lambda: not [pid for pid in started if is_living(pid)])
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


def _wait_until(condition: Callable[[], bool], *, timeout_s: float = 60) -> bool:
    deadline = time.monotonic() + timeout_s
    while not (is_so := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return is_so


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


TELLS = """
import gc, hashlib, json, os, re, resource, sys, time
TOKEN = re.compile(r"[0-9a-f]{16}|0x[0-9a-f]+")

PLAIN = (int, str, bytes, bool, dict, list, tuple)

def plain(value):
    if not isinstance(value, PLAIN):
        return type(value).__name__
    text = TOKEN.sub("-", repr(value))
    return text if len(text) < 300 else hashlib.sha256(text.encode()).hexdigest()

def frames():
    frame = sys._getframe(2)
    while frame is not None:
        yield frame.f_code.co_name, {name: plain(value) for name, value in frame.f_locals.items()}
        frame = frame.f_back

def ages():
    now = time.time()
    for base in ("/data", "/submission"):
        for path in (base, *(f"{base}/{name}" for name in os.listdir(base))):
            found = os.stat(path)
            yield path, [now - when > 60 for when in (found.st_mtime, found.st_ctime, found.st_atime)]

def texts(word):
    n = 0
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", buffering=0) as memory:
        for line in maps.read().splitlines():
            span, rights, *name = line.split()
            if not rights.startswith("rw") or name and name[0] != "[heap]":
                continue
            begin, end = (int(edge, 16) for edge in span.split("-"))
            if end - begin > 1 << 26:
                continue
            try:
                memory.seek(begin)
                n += memory.read(end - begin).count(word)
            except (OSError, OverflowError):
                continue
    return n

def unlearning(net, retain, forget, validation):
    # what stands in memory is looked for first, with a word that is never complete in this code
    number = texts(b"58023" + bytes([49, 55]))
    print(json.dumps({
        "number": number,
        "frames": list(frames()),
        "collector": [gc.get_count()[1:], gc.get_freeze_count()],
        "environment": dict(os.environ),
        "arguments": [sys.argv, open("/proc/self/cmdline").read()],
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if "RLIMIT" in name},
        "descriptors": [os.readlink(f"/proc/self/fd/{n}").split(":")[0] for n in range(4)],
        "processes": [os.getpid(), os.getppid(), os.getsid(0)],
        "others": [name for name in os.listdir("/proc") if name.isdigit()],
        "mounts": [TOKEN.sub("-", " ".join(line.split()[3:6])) for line in open("/proc/self/mountinfo")],
        "groups": open("/proc/self/cgroup").read(),
        "ages": dict(ages()),
    }))
"""
OLD_S = time.time() - 3600


@pytest.fixture(scope="module")
def aged(split: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sandbox, Path]]:
    """A sandbox as workers start it, and a submission that has waited for an hour."""
    folder = tmp_path_factory.mktemp("self-knowledge")
    stage = folder / "stage"
    stage.mkdir()
    code = write_submission(stage, "0123456789abcdef", TELLS)
    for path in (*code.iterdir(), code):
        os.utime(path, (OLD_S, OLD_S))
    spec = SandboxSpec(
        data_dir=split, stage_dir=stage, policy=replace(TEST_POLICY, log_kib=256), neutral_dirs=(folder / "views",)
    )
    with Launcher(spec).start() as sandbox:
        yield sandbox, code


def seen(sandbox: Sandbox, code: Path, **wanted: Any) -> dict[str, Any]:
    result = sandbox.run(RunRequest(code_dir=code, seed=7, **wanted))
    assert result.weights is not None, result.log.decode()[-3000:]
    found: dict[str, Any] = json.loads(result.log)
    return found


def test_smoke_runs_and_hidden_runs_look_the_same(aged: tuple[Sandbox, Path]) -> None:
    sandbox, code = aged
    first = seen(sandbox, code, run=0, kind="sample")
    assert first == seen(sandbox, code, run=5802317, kind="hidden")
    assert first == seen(sandbox, code, run=3, kind="hidden")
    assert not first["number"], "the run's number is nowhere in memory"
    assert {path for path, old in first["ages"].items() if any(old)} == set()
