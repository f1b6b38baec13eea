"""A complete instance on one machine: database, private Redis, web server and worker, started and stopped together."""

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

import server
from lethe.errors import HostFault
from server import environment
from server.config import Settings
from server.embedded.redis import IDLE_TIMEOUT_S, StartTime, die_with_parent, start_redis
from server.errors import Conflict
from server.migrate import upgrade
from server.private_files import keep_private

CODE = Path(server.__file__).resolve().parents[1]


@dataclass(frozen=True)
class RunningInstance:
    """Address and processes of a running instance."""

    url: str
    home: Path
    processes: Mapping[str, subprocess.Popen[bytes]]

    def require_alive(self) -> None:
        """Raise HostFault if one of the processes has ended."""
        for name, process in self.processes.items():
            if process.poll() is not None:
                log = self.home / "logs" / f"{name}.log"
                raise HostFault(f"the {name} process ended (exit {process.returncode}); its log: {log}")


@contextmanager
def running(settings: Settings, *, worker: bool = True) -> Iterator[RunningInstance]:
    """Run an instance until the block is left. Raises Conflict if one runs in this home folder already."""
    environment.raise_open_files_limit()  # its Redis takes one for each connection of the others
    home = settings.home.absolute()
    keep_private(home)
    with ExitStack() as stack:
        stack.enter_context(_ended_in_order())
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
        variables = _environment(settings, url)
        with listener:
            web = _start(stack, home, "web", _web_command(listener), variables, pass_fds=(listener.fileno(),))
        processes = {"web": web}
        if worker:
            processes["worker"] = _start(stack, home, "worker", _worker_command(settings), variables)
        _wait_until_ready(url, web, log=home / "logs" / "web.log")
        (home / "instance.json").write_text(json.dumps({"url": url, "pid": os.getpid()}))
        stack.callback((home / "instance.json").unlink, missing_ok=True)
        yield RunningInstance(url=url, home=home, processes=processes)


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C, so that child processes are stopped."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


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
    # Connections inherit it. The server is given a descriptor, takes it for a unix socket, and does not set it itself:
    # each answer's body would wait 40 ms for the client to acknowledge its head.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        chosen = "port" in settings.model_fields_set  # otherwise 8000 is a habit, and any port will do
        try:
            if chosen or error.errno != errno.EADDRINUSE:
                raise
            listener.bind((settings.host, 0))
        except OSError as refused:
            listener.close()
            why = f"port {settings.port} is taken: stop what listens there (`ss -ltnp` shows it), or choose another"
            why = why if refused.errno == errno.EADDRINUSE else str(refused)
            raise HostFault(f"cannot listen on {settings.host}: {why}") from refused
    listener.listen(2048)  # as uvicorn does by itself: a crowd that connects at once is not turned away
    return listener


def _web_command(listener: socket.socket) -> list[str]:
    options = ("--fd", str(listener.fileno()), "--log-level", "warning", "--timeout-graceful-shutdown", "3")
    return [sys.executable, "-m", "server", *options]


def _worker_command(settings: Settings) -> list[str]:
    return [
        *(sys.executable, "-m", "worker", "--beat", "--concurrency", str(settings.worker_concurrency)),
        *("--loglevel", "warning", "--without-gossip", "--without-mingle"),
    ]


def _environment(settings: Settings, url: str) -> dict[str, str]:
    return os.environ | {
        "PYTHONPATH": str(CODE),  # of the packages, and not the current folder, whatever lies there
        "PYTHONSAFEPATH": "1",
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
    variables: dict[str, str],
    *,
    pass_fds: tuple[int, ...] = (),
) -> subprocess.Popen[bytes]:
    log = stack.enter_context((home / "logs" / f"{name}.log").open("ab"))
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=variables,
        pass_fds=pass_fds,
        start_new_session=True,  # Ctrl-C is for us; we then end the others in order
        preexec_fn=die_with_parent(),  # noqa: PLW1509 (no thread of ours runs yet, and the child only calls prctl)
    )
    stack.callback(_stop, process)
    return process


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
    """Return once it answers, or it is given up."""
    start = StartTime(web.pid, silent_for_s=IDLE_TIMEOUT_S, least_s=IDLE_TIMEOUT_S / 100)
    with httpx.Client(base_url=url, timeout=2.0, trust_env=False) as client:
        while start.goes_on():
            if web.poll() is not None:
                raise HostFault(f"the web server ended at once (exit {web.returncode}); its log: {log}")
            try:
                if client.get("/healthz").status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
    raise HostFault(
        f"the web server does not answer, and made no progress for {IDLE_TIMEOUT_S:g} s ({start.used_s:.0f} s of a "
        f"processor used); its log: {log}"
    )
