"""Strangers' texts, read in a process that can be killed, and never in this one.

`ReadingTurns.run` waits its turn without holding one of the threads that answer requests; `run_if_free` hardly waits.
"""

import asyncio
import atexit
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any

import structlog
from markupsafe import Markup, escape

import server
from lethe import errors
from lethe.errors import AppError, HostFault, InvalidInput, Violation
from server.errors import Overloaded, RateLimited
from server.parsing.process import (
    MAX_CHILDREN,
    MAX_OF_ONE_ACCOUNT,
    MAX_WAITING,
    MEMORY_BYTES,
    NICE_AFTER_S,
    NICENESS,
    STARTED,
    TaskLimits,
    get_limits,
)

log = structlog.get_logger()

CODE = Path(server.__file__).resolve().parents[1]
ANSWER_AFTER_S = 10  # the end of a task's time
BUSY_S = 10
PATIENCE_S = 1.0
ATTEMPTS = 2  # at finding a reader: one that was killed may take a text's place in the queue with it
_FOR_PAGES = threading.BoundedSemaphore(MAX_CHILDREN)
_FOR_FILES_OF_PAGES = threading.BoundedSemaphore(1)  # of its own: no page waits for what takes a minute


class Unreadable(InvalidInput):
    """Reading the text went beyond its limits, or broke the reader."""


class ParsingProcess:
    """The process that forks the readers. It is started when it is first needed, and again if it was killed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def connect(self, *files: IO[bytes]) -> socket.socket:
        """Return a connection to its own reader, which is given the files. Raises HostFault."""
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            for _ in range(2):
                try:
                    numbers = [theirs.fileno(), *(file.fileno() for file in files)]
                    socket.send_fds(self._running(), [b"+"], numbers)
                except OSError:
                    self._stop()
                else:
                    return ours
        ours.close()
        raise HostFault("The process that reads uploads cannot be started", retry_after_s=BUSY_S)

    def start(self) -> None:
        """Start the process before it is needed: it loads for some seconds."""
        with self._lock:
            self._running()

    def stop(self) -> None:
        """End the process. May be called twice."""
        with self._lock:
            self._stop()

    def _running(self) -> socket.socket:
        if self._control is None:
            self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                command = [sys.executable, "-m", "server.parsing.process", str(theirs.fileno())]
                environment = {"PYTHONPATH": str(CODE), "PYTHONSAFEPATH": "1"}  # no secret of ours
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, env=environment, pass_fds=(theirs.fileno(),)
                )
        return self._control

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()  # it ends when nobody can ask it any more
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1)
            self._process.kill()
            self._process.wait()
        self._control = self._process = None


class ReadingTurns:
    """Lets MAX_CHILDREN texts be read at a time, and only so many of one account wait for it."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(MAX_CHILDREN, thread_name_prefix="parsing")
        self._for_files = ThreadPoolExecutor(1, thread_name_prefix="parsing-file")
        self._waiting: Counter[str] = Counter()

    async def run(self, task: str, data: bytes, *, account_id: str, options: dict[str, Any]) -> Any:
        """Return what the task makes of `data`. Only called in the event loop, so that the counts need no lock."""
        if self._waiting[account_id] >= MAX_OF_ONE_ACCOUNT:
            raise RateLimited(f"{MAX_OF_ONE_ACCOUNT} of your files are being read; wait for them", retry_after_s=BUSY_S)
        if self._waiting.total() >= MAX_WAITING:
            raise HostFault("Too many files wait to be read; try again in some seconds", retry_after_s=BUSY_S)
        self._waiting[account_id] += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: run(task, data, **options))
        finally:
            self._waiting[account_id] -= 1
            self._waiting += Counter()  # forgets accounts at zero

    async def run_on_file(self, task: str, file: IO[bytes], **options: Any) -> Any:
        """Return what the task makes of a large file, one at a time. The caller limits how many wait."""
        work = partial(run_on_file, task, file, **options)
        return await asyncio.get_running_loop().run_in_executor(self._for_files, work)


@lru_cache
def turns() -> ReadingTurns:
    """Return the turns of this process."""
    return ReadingTurns()


@lru_cache
def parsing_process(_pid: int) -> ParsingProcess:
    """Return the one of this process."""
    process = ParsingProcess()
    atexit.register(process.stop)
    return process


def run_if_free(task: str, data: bytes, **options: Any) -> Any:
    """Do what `run` does, for a page. Raises HostFault if too many pages have something read."""
    if not _FOR_PAGES.acquire(timeout=PATIENCE_S):
        raise HostFault("Too many files are being read; try again in some seconds", retry_after_s=BUSY_S)
    try:
        return run(task, data, **options)
    finally:
        _FOR_PAGES.release()


@contextmanager
def turn_for_file() -> Iterator[None]:
    """Hold the only turn of a page that has a file read; it is taken before the file is fetched. Raises HostFault."""
    if not _FOR_FILES_OF_PAGES.acquire(timeout=PATIENCE_S):
        raise HostFault("Another dataset is being read; try again in some seconds", retry_after_s=BUSY_S)
    try:
        yield
    finally:
        _FOR_FILES_OF_PAGES.release()


def run(task: str, data: bytes, **options: Any) -> Any:
    """Return what the task makes of `data`. Raises its AppError, Unreadable, HostFault or Overloaded."""
    return _run(task, data, (), options)


def run_on_file(task: str, file: IO[bytes], **options: Any) -> Any:
    """Do what `run` does with an open file, which the reader is given instead of a text."""
    return _run(task, b"", (file,), options)


def _run(task: str, data: bytes, files: tuple[IO[bytes], ...], options: dict[str, Any]) -> Any:
    limits = get_limits(task)
    header = {"task": task, "bytes": len(data), "limits": vars(limits), "options": options}
    for _ in range(ATTEMPTS):
        with parsing_process(os.getpid()).connect(*files) as connection:
            connection.settimeout(limits.wall_s + ANSWER_AFTER_S)
            answer = _exchange(connection, json.dumps(header).encode() + b"\n", data, wall_s=limits.wall_s)
        if answer is not None:
            return _result(task, answer, limits)
    raise HostFault("The process that reads uploads did not begin; try again", retry_after_s=BUSY_S)


def _exchange(connection: socket.socket, header: bytes, data: bytes, *, wall_s: float) -> bytes | None:
    """Return the reader's answer as far as it came, None if it did not begin. Raises Overloaded if its time ended."""
    began = time.monotonic()  # before the reader's own time begins, or its end would seem to come before that is over
    with connection.makefile("rb") as stream:  # the answer may come in one piece with the first line
        try:
            connection.sendall(header)
            line = stream.readline(20)
        except OSError:
            return None
        if not (line.startswith(STARTED) and line.endswith(b"\n")):
            return None
        with suppress(OSError):  # a reader that has its answer already, or was killed, reads no more
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        _let_others_go_first(connection, reader=int(line[1:]), wall_s=wall_s)
        answer = b""
        with suppress(OSError):  # it was killed, or is silent for too long
            answer = stream.read()
        if not answer and time.monotonic() - began >= wall_s:  # without reaching the limit of what it may compute
            raise Overloaded(f"Reading it took more than {wall_s:g} s: the server is busy", retry_after_s=BUSY_S)
        return answer


def _let_others_go_first(connection: socket.socket, *, reader: int, wall_s: float) -> None:
    """Wait for the answer while the reader computes as long as an honest text takes; then lower its priority."""
    clock = ~reader << 3 | 2  # clock_getcpuclockid(3): what the process has computed, whatever else the machine does
    with suppress(OSError):  # it has ended
        before = time.clock_gettime(clock)
        for _ in range(int(wall_s / NICE_AFTER_S)):
            if select.select([connection], [], [], NICE_AFTER_S)[0]:
                return
            if time.clock_gettime(clock) - before > NICE_AFTER_S / 2:
                os.setpriority(os.PRIO_PROCESS, reader, NICENESS)
                return


def _result(task: str, answer: bytes, limits: TaskLimits) -> Any:
    try:
        reply = json.loads(answer)
    except ValueError:  # nothing, or not all of it: the reader was ended
        limit = f"{limits.cpu_s} s of computing or {MEMORY_BYTES >> 20} MiB of memory"
        raise Unreadable(f"Reading it takes more than {limit}; send less of it") from None
    if "refused" in reply:
        kind: type[AppError] = getattr(errors, reply["refused"])
        violations = tuple(Violation(**violation) for violation in reply["violations"])
        raise kind(reply["detail"], violations=violations, summary=reply["summary"])
    if "fault" in reply:
        log.error("a text broke its reader", task=task, error=reply["fault"])
        raise Unreadable(f"It cannot be read ({reply['fault']})")
    return reply["result"]


def markdown(text: str) -> Markup:
    """Return Markdown as HTML; as it was written, if it cannot be rendered."""
    try:
        return _rendered(text)
    except HostFault:  # too many are rendered now: the next page may have it
        return _as_written(text)


@lru_cache(maxsize=256)
def _rendered(text: str) -> Markup:
    try:
        return Markup(run_if_free("render_markdown", text.encode()))  # noqa: S704 (the parser escapes; html is off)
    except (Unreadable, UnicodeEncodeError):
        return _as_written(text)


def _as_written(text: str) -> Markup:
    return Markup("<pre>{}</pre>").format(escape(text))
