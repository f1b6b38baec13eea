"""The attack suite as data: which attacks there are, what each must end in, and what of the host must stay as it was.

Each function of `hostile/` whose docstring says what it tries is one; its file with a call of it is a submission.
"""

import errno
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from sandbox.policy import RunPolicy

FOLDER = Path(__file__).parent / "hostile"
PROMISE = re.compile(r'^def (\w+)\(.+\):\n    """Tries to (.+)\. Must end in: ([a-z|-]+)"""\n', re.MULTILINE)
CANARY_SOCKET = b"\0lethe-canary"
CANARY_PORT = 47113
# One or more of each kind and of each end, for every further way of running them.
SAMPLE = (
    *("calls_i386", "calls_refused", "files_canary", "files_change", "files_read", "frame_huge_values", "frame_nan"),
    *("frame_message_out", "frame_pickle", "harness_fake_success", "memory_bomb", "memory_shared"),
    *("memory_many_processes", "network_sockets", "proc_secrets", "processes_fork_bomb", "processes_thread_bomb"),
    *("processes_daemon", "disk_many_files", "log_flood", "runs_leave_state", "time_loop", "time_sleep"),
)
# Little of everything, so that each attack meets its limit soon.
POLICY = replace(
    RunPolicy(),
    wall_time_s=10,
    idle_time_s=2,
    cpu_time_s=1.5,
    memory_mib=256,
    processes=24,
    scratch_mib=16,
    scratch_inodes=256,
    shared_memory_mib=8,
    file_size_mib=32,
    log_kib=32,
)
_SYSCTLS = (
    "kernel/core_pattern",
    "kernel/modprobe",
    "kernel/hostname",
    "vm/overcommit_memory",
    "kernel/randomize_va_space",
)


@dataclass(frozen=True)
class Attack:
    """A function of a hostile file, and the outcomes that its docstring allows."""

    name: str
    attempt: str
    outcomes: frozenset[str]
    submission: str  # the file's text, with the function as its entry point


@cache
def attacks() -> list[Attack]:
    """Return every attack, in the order of its name."""
    found = [
        Attack(name, attempt, frozenset(outcomes.split("|")), text + _called(name))
        for text in hostile_texts()
        for name, attempt, outcomes in PROMISE.findall(text)
    ]
    return sorted(found, key=lambda attack: attack.name)


def hostile_texts() -> list[str]:
    return [path.read_text(encoding="utf-8") for path in FOLDER.glob("*.py")]


def _called(name: str) -> str:
    at_once = f"\n\n{name}()\n" if name.endswith("_in_import") else ""
    return f"\n\ndef unlearning(*sets):\n    return {name}(*sets)\n{at_once}"


@contextmanager
def canaries() -> Iterator[Callable[[], dict[str, object]]]:
    """Set out what attacks look for, and yield a function that takes the host's state; it must never change."""
    abstract = _only_one()
    folder = Path(tempfile.mkdtemp(prefix="lethe-canary-", dir="/tmp"))
    folder.chmod(0o755)
    secret = folder / "secret"
    secret.write_text("canary", encoding="utf-8")
    os.environ["LETHE_CANARY"] = "secret"
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    service = socket.socket()
    try:
        service.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        service.bind(("127.0.0.1", CANARY_PORT))
        service.listen()
        service.setblocking(False)
        yield lambda: {
            "secret": (secret.read_text(encoding="utf-8"), secret.stat().st_mtime_ns, sorted(folder.iterdir())),
            "bystander": bystander.poll(),
            "visitors": (_visitor(abstract), _visitor(service)),
            "sysctls": [_sysctl(name) for name in _SYSCTLS],
            "groups": process_groups(os.getpid()),
            "shared memory": sorted(path.name for path in Path("/dev/shm").glob("*lethe*")),
            "queues": sorted(path.name for path in Path("/dev/mqueue").glob("*lethe*")),
            "core dumps": sorted(Path.cwd().glob("core*")),
        }
    finally:
        bystander.kill()
        bystander.wait()
        service.close()
        del os.environ["LETHE_CANARY"]
        shutil.rmtree(folder)
        abstract.close()


def _only_one() -> socket.socket:
    """Return the socket that attacks look for, once no other test process has its own under that name."""
    abstract = socket.socket(socket.AF_UNIX)
    while True:
        try:
            abstract.bind(CANARY_SOCKET)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            time.sleep(0.1)
        else:
            break
    abstract.listen()
    abstract.setblocking(False)
    return abstract


def _visitor(server: socket.socket) -> bool:
    try:
        server.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def _sysctl(name: str) -> str:
    path = Path("/proc/sys", name)
    return path.read_text(encoding="utf-8") if path.exists() else ""


def process_groups(pid: int) -> list[str]:
    """Return the control groups that a process's sandboxes left; none, between two runs."""
    # os.walk, unlike glob, passes over folders that vanish meanwhile: another process's runs end at any time.
    prefix = f"lethe-sandbox-{pid}-"
    found = (name for _, folders, _ in os.walk("/sys/fs/cgroup") for name in folders)
    return sorted(name for name in found if name.startswith(prefix))
