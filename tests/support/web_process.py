"""A web server as its own process, as an instance starts it, for tests that count on real sockets."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
STARTS_WITHIN_S = 60.0


@contextmanager
def web_process(
    database_url: str, home: Path, *, application: str = "server.main:create_app", **settings: str
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Yield the port and the process of one uvicorn. settings: LETHE_ variables of its own."""
    port = free_port()
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "LETHE_DATABASE_URL": database_url,
        "LETHE_HOME": str(home),
        "LETHE_STORAGE_URL": (home / "storage").as_uri(),
        **settings,
    }
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(ROOT), "--factory", application]
    options = ["--port", str(port), "--no-access-log", "--log-level", "warning", "--timeout-graceful-shutdown", "3"]
    home.mkdir(parents=True, exist_ok=True)
    with (home / "web.log").open("wb") as log:
        process = subprocess.Popen([*command, *options], env=environment, stdout=log, stderr=log)
    try:
        _wait_for(port, process, log=home / "web.log")
        yield port, process
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes], *, log: Path) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the web server ended:\n{log.read_text()[-2000:]}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"the web server did not start:\n{log.read_text()[-2000:]}")
