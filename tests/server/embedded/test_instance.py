"""An instance of one machine: it takes with it what it started, and starts in a folder that is not ours."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from lethe.errors import HostFault
from server.embedded import instance, redis
from tests.support.processes import descendants

# As `lethe demo` does: SIGTERM comes while it works, not while it waits for one.
PROGRAM = """
import time
from server.config import get_settings
from server.embedded.instance import running
with running(get_settings(), worker=False) as instance:
    print(instance.url, flush=True)
    time.sleep(600)
"""


def started_by(process: int) -> set[int]:
    """Return its children, theirs, and so on."""
    children = {
        int(word) for path in Path(f"/proc/{process}/task").glob("*/children") for word in path.read_text().split()
    }
    return children.union(*(started_by(child) for child in children))


def alive(processes: set[int]) -> set[int]:
    return {number for number in processes if Path(f"/proc/{number}").is_dir()}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_instance_that_is_ended_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    environment = os.environ | {"LETHE_HOME": str(tmp_path / "home"), "LETHE_PORT": "0"}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(b"http://")
            started = started_by(process.pid)
            assert len(started) >= 2, "Redis and the web server"
            process.send_signal(number)
            process.wait(timeout=60)
        finally:
            process.kill()
    deadline = time.monotonic() + 30
    while alive(started) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert alive(started) == set()


BUSY = """
import http.server, sys, time
time.sleep(1.5)
class Well(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Well).serve_forever()
"""


def test_web_server_is_waited_for_while_it_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = count()
    monkeypatch.setattr(instance, "IDLE_TIMEOUT_S", 1.0)
    monkeypatch.setattr(redis, "processor_s", lambda _: next(seconds))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen([sys.executable, "-c", BUSY, str(port)]) as web:
        try:
            instance._wait_until_ready(f"http://127.0.0.1:{port}", web, log=tmp_path / "web.log")
        finally:
            web.kill()


def test_web_server_that_stands_still_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "IDLE_TIMEOUT_S", 0.5)
    with subprocess.Popen(["sleep", "60"]) as web:
        try:
            with pytest.raises(HostFault, match="made no progress"):
                instance._wait_until_ready("http://127.0.0.1:9", web, log=tmp_path / "web.log")
        finally:
            web.kill()


ROOT = Path(__file__).parents[3]
RAN = "from pathlib import Path; Path(__file__).with_name('ran-a-stranger').touch(); raise SystemExit('a stranger')"
WITHIN_S = 90.0


def wait_for(log: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while text not in log.read_text() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    assert text in log.read_text()


@pytest.fixture
def up(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`lethe up` as the installed command starts it, in a folder with files of our packages' names."""
    folder = tmp_path / "elsewhere"
    for package in ("sandbox", "migrations", "lethe"):
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").write_text(RAN)
    for module in ("server", "worker", "tasks"):
        (folder / f"{module}.py").write_text(RAN)
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LETHE_REDIS_URL")}
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from lethe.cli.main import main; main()"
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", code, "up"],
            cwd=folder,
            env=environment
            | {"LETHE_HOME": str(tmp_path / "home"), "LETHE_PORT": "0", "PYTHONUNBUFFERED": "1"}
            | {"LETHE_WORKER_CONCURRENCY": "1"},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def find_worker(process: subprocess.Popen[bytes]) -> int:
    found = [pid for pid, command in descendants(process.pid) if "-m worker" in command]
    assert found
    return min(found)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # ended, though nobody has asked how


def wait_until_gone(pids: list[int], *, within_s: float = 20.0) -> None:
    deadline = time.monotonic() + within_s
    while alive := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < deadline, f"processes {alive} outlive their worker"
        time.sleep(0.1)


@pytest.mark.slow
def test_up_ignores_the_folder_and_notices_a_dead_worker(up: subprocess.Popen[bytes], tmp_path: Path) -> None:
    wait_for(tmp_path / "log", "Ctrl-C ends it", up)
    wait_for(tmp_path / "home" / "logs" / "worker.log", "", up)
    worker, below = find_worker(up), []
    while len(below) < 2:  # what computes and what schedules; a stranger's module would have ended the worker before
        assert up.poll() is None
        below = [pid for pid, _ in descendants(worker)]
        time.sleep(0.1)
    os.kill(worker, signal.SIGKILL)
    assert up.wait(30) == 1
    wait_until_gone(below)
    log = (tmp_path / "log").read_text()
    assert "the worker process ended (exit -9)" in log
    assert "worker.log" in log
    assert list((tmp_path / "elsewhere").rglob("ran-a-stranger")) == []
