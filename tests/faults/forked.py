"""Our programs as real processes, forked from one that has imported their libraries: the same, and seconds sooner.

Importing torch takes longer than most faults last. Only libraries are shared: what is forked imports our own code by
itself, and has a session, an environment and its own log. Whatever becomes of a test, none outlives it: each of
these processes ends with the one that forked it, and so do the processes that it forks itself.
"""

import ctypes
import multiprocessing
import os
import random
import runpy
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

from tests.support.processes import descendants

LIBRARIES = [
    "tests.support.collector_off",
    "alembic.command",
    "celery.apps.beat",
    "celery.apps.worker",
    "celery.bin.celery",
    "celery.concurrency.prefork",
    "fastapi",
    "jinja2",
    "kombu.transport.redis",
    "numba",
    "psycopg",
    "pydantic_settings",
    "safetensors.torch",
    "scipy.stats",
    "sklearn.datasets",
    "sqlalchemy.orm",
    "structlog",
    "torch._dynamo",
    "torchvision",
    "uvicorn.main",
    "tests.support.collector_on",
]
_PARENT: list[int] = []  # of the process that is being forked


@dataclass
class Process:
    """One started process and its log."""

    name: str
    forked: ForkServerProcess
    log: Path

    @property
    def pid(self) -> int:
        if self.forked.pid is None:
            raise RuntimeError("the process was not started")
        return self.forked.pid

    @property
    def is_alive(self) -> bool:
        return self.forked.is_alive()

    @property
    def exit_status(self) -> int | None:
        return self.forked.exitcode

    def children(self) -> list[int]:
        """Return the ids of the processes that do a worker's computing, not of the sandboxes below them."""
        own = Path(f"/proc/{self.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        return [pid for pid, command in descendants(self.pid) if command == own and _parent(pid) == self.pid]

    def sandboxes(self) -> list[int]:
        """Return the ids of the processes with each of which a complete sandbox below a worker ends."""
        return sorted(
            pid for pid, command in descendants(self.pid) if "bwrap" in command and "sandbox.guest.template" in command
        )

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, timeout_s: float) -> bool:
        """Return whether it ended in time."""
        self.forked.join(timeout_s)
        return not self.is_alive

    def kill(self) -> None:
        """End it and all its processes as a power cut would."""
        for pid in [self.pid, *(pid for pid, _ in descendants(self.pid))]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.forked.join()

    def stop(self, *, timeout_s: float = 30.0) -> None:
        """Ask it to end and wait until it has."""
        if self.is_alive:
            self.signal(signal.SIGTERM)
            if not self.wait(timeout_s):
                self.kill()


def start(
    name: str,
    module: str,
    arguments: Sequence[str],
    *,
    environment: dict[str, str],
    log: Path,
    errors: Path | None = None,
    folder: Path | None = None,
) -> Process:
    """Run `python -m module arguments` in a folder, with nothing in its environment but what is given.

    log: what it writes, and errors, if that is given, what it writes to its standard error.
    """
    forked = _context().Process(target=_run, args=(module, arguments, environment, (log, errors or log), folder))
    forked.start()
    return Process(name, forked, log)


def begin() -> None:
    """Let the process that all are forked from load its libraries while other things are done."""
    _context()
    forkserver.ensure_running()


@lru_cache
def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LIBRARIES)
    return context


def _run(
    module: str, arguments: Sequence[str], environment: dict[str, str], written: tuple[Path, Path], folder: Path | None
) -> None:
    os.setsid()
    _let_the_server_go()
    _end_with(os.getppid())
    os.register_at_fork(before=_note_parent, after_in_child=lambda: _end_with(_PARENT[0]))
    for standard, file in enumerate(written, start=1):
        output = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, standard)
        os.close(output)
    if folder is not None:
        os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    random.seed()
    time.tzset()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _let_the_server_go() -> None:
    """The process that forks us lives as long as anybody holds this pipe: that should be the test alone."""
    server: Any = vars(forkserver)["_forkserver"]
    if server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
        server._forkserver_alive_fd = None


def _note_parent() -> None:
    _PARENT[:] = [os.getpid()]


def _end_with(parent: int) -> None:
    """End when the parent does, also if it has already."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return -1
