"""The web server as its own process, for tests that count on real sockets.

Each is forked from a process that has imported the server and made its routes: the same, and seconds sooner.
"""

import os
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from multiprocessing import forkserver, popen_forkserver
from multiprocessing.context import ForkServerProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from unittest import mock

from tests.faults import forked
from tests.support.ports import free_port

STARTS_WITHIN_S = 60.0


@contextmanager
def web_process(folder: Path, *, module: str = "server", **environment: str) -> Iterator[int]:
    """Yield the port of `python -m module`, which is stopped at the end. Its log is folder / "web.log".

    module: `server`, or one that starts it with other limits. environment: what differs from this process's.
    """
    port = free_port()
    options = ["--port", str(port), "--log-level", "warning", "--timeout-graceful-shutdown", "3"]
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "web.log"
    process = _Process(target=_run, args=(module, options, os.environ | environment, log))
    process.start()
    try:
        _wait_for(port, process, log=log)
        yield port
    finally:
        process.terminate()
        process.join(30)
        process.kill()
        process.join()


class _Popen(popen_forkserver.Popen):
    """Forked from our own server, not from the one that other tests fork from."""

    def _launch(self, process_obj: BaseProcess) -> None:
        with mock.patch.object(forkserver, "connect_to_new_process", _forks().connect_to_new_process):
            super()._launch(process_obj)  # type: ignore[misc]  # the types do not know it


class _Process(ForkServerProcess):
    @staticmethod
    def _Popen(process_obj: BaseProcess) -> popen_forkserver.Popen:
        return _Popen(process_obj)


@lru_cache
def _forks() -> forkserver.ForkServer:
    server = forkserver.ForkServer()
    modules = ("collector_off", "imported_server", "collector_on")
    server.set_forkserver_preload([f"tests.support.{module}" for module in modules])
    return server


def _run(module: str, options: list[str], environment: dict[str, str], log: Path) -> None:
    tempfile.tempdir = None  # as the environment says, not as it was where we were forked
    forked._run(module, options, environment, (log, log), None)


def _wait_for(port: int, process: BaseProcess, *, log: Path) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < deadline:
        if not process.is_alive():
            raise RuntimeError(f"the web server ended:\n{log.read_text()[-2000:]}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"the web server did not start:\n{log.read_text()[-2000:]}")
