"""A whole instance on one machine: database, private Redis, web server and worker, started and stopped together."""

import ctypes
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from server.config import Settings
from server.embedded.redis import start_redis
from server.errors import Conflict, HostFault
from server.migrate import upgrade

PR_SET_PDEATHSIG = 1
READY_WITHIN_S = 60.0


@dataclass(frozen=True)
class RunningInstance:
    """Where a running instance is reached."""

    url: str
    home: Path


@contextmanager
def running(settings: Settings, *, worker: bool = True) -> Iterator[RunningInstance]:
    """Run an instance until the block is left. Raises Conflict if one runs in this home folder already."""
    home = settings.home.absolute()
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with ExitStack() as stack:
        lock = stack.enter_context((home / "instance.lock").open("ab"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Conflict(f"an instance runs in {home} already{_at(home)}; stop it, or set LETHE_HOME") from error
        (home / "logs").mkdir(exist_ok=True)
        upgrade(settings.resolved_database_url)
        if not settings.redis_url:
            stack.enter_context(start_redis(home / "redis"))
        listener = _listen(settings)
        url = f"http://{settings.host}:{listener.getsockname()[1]}"
        environment = _environment(settings, url)
        with listener:
            web = _start(stack, home, "web", _web_command(listener), environment, pass_fds=(listener.fileno(),))
        if worker:
            _start(stack, home, "worker", _worker_command(settings), environment)
        _wait_until_ready(url, web, log=home / "logs" / "web.log")
        (home / "instance.json").write_text(json.dumps({"url": url, "pid": os.getpid()}))
        stack.callback((home / "instance.json").unlink, missing_ok=True)
        yield RunningInstance(url=url, home=home)


def is_running(settings: Settings) -> bool:
    """Return whether some process runs an instance in this home folder."""
    path = settings.home.absolute() / "instance.lock"
    if not path.exists():
        return False
    with path.open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def url_of_running(settings: Settings) -> str:
    """Return where the instance of this home folder is reached. Raises HostFault if it has not said so yet."""
    try:
        return str(json.loads((settings.home.absolute() / "instance.json").read_text())["url"])
    except (OSError, ValueError, KeyError) as error:
        raise HostFault(f"an instance starts in {settings.home}; try again in a few seconds") from error


def _at(home: Path) -> str:
    try:
        return f" at {json.loads((home / 'instance.json').read_text())['url']}"
    except (OSError, ValueError, KeyError):
        return ""


def _listen(settings: Settings) -> socket.socket:
    """Bind the web server's port here, so that no other process can take it in between."""
    listener = socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError:
        try:
            listener.bind((settings.host, 0))
        except OSError as error:
            listener.close()
            raise HostFault(f"cannot listen on {settings.host}: {error}") from error
    listener.listen(128)
    return listener


def _web_command(listener: socket.socket) -> list[str]:
    fd = str(listener.fileno())
    return [
        *(sys.executable, "-m", "uvicorn", "--factory", "server.main:create_app"),
        *("--fd", fd, "--no-access-log", "--log-level", "warning", "--timeout-graceful-shutdown", "3"),
    ]


def _worker_command(settings: Settings) -> list[str]:
    return [
        *(sys.executable, "-m", "celery", "--app", "worker.app", "worker", "--beat"),
        *("--concurrency", str(settings.worker_concurrency), "--loglevel", "warning"),
        *("--without-gossip", "--without-mingle"),
    ]


def _environment(settings: Settings, url: str) -> dict[str, str]:
    return os.environ | {
        "LETHE_HOME": str(settings.home.absolute()),
        "LETHE_DATABASE_URL": settings.resolved_database_url,
        "LETHE_REDIS_URL": settings.resolved_redis_url,
        "LETHE_STORAGE_URL": settings.resolved_storage_url,
        "LETHE_PUBLIC_URL": settings.public_url or url,
        "OMP_NUM_THREADS": str(settings.worker_threads),
    }


def _start(
    stack: ExitStack,
    home: Path,
    name: str,
    command: list[str],
    environment: dict[str, str],
    *,
    pass_fds: tuple[int, ...] = (),
) -> subprocess.Popen[bytes]:
    log = stack.enter_context((home / "logs" / f"{name}.log").open("ab"))
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=environment,
        pass_fds=pass_fds,
        start_new_session=True,  # Ctrl-C is for us; we then end the others in order
        preexec_fn=_die_with_parent,  # noqa: PLW1509 (no thread of ours runs yet, and the child only calls prctl)
    )
    stack.callback(_stop, process)
    return process


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _stop(process: subprocess.Popen[bytes], *, timeout_s: float = 15.0) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_until_ready(url: str, web: subprocess.Popen[bytes], *, log: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    with httpx.Client(base_url=url, timeout=2.0, trust_env=False) as client:
        while time.monotonic() < deadline:
            if web.poll() is not None:
                raise HostFault(f"the web server ended at once (exit {web.returncode}); its log: {log}")
            try:
                if client.get("/healthz").status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
    raise HostFault(f"the web server did not answer within {READY_WITHIN_S:g} s; its log: {log}")
