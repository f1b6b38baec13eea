"""An instance that is told to end takes with it what it started."""

import os
import signal
import socket
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest

from lethe.errors import HostFault
from server.embedded import instance, redis

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
