"""`python -m server`: uvicorn with its own limits. Addresses of proxies are believed in server.main only."""

import argparse
import gc
import os
import socket
import sys
import threading
from contextlib import suppress
from importlib import import_module
from typing import Any

import uvicorn

from server import environment
from server.parsing.client import parsing_process
from server.private_files import instance_settings

MAX_HEAD_BYTES = 32 << 10  # of a request's address and headers
MAX_CONNECTIONS = 4096  # and requests at a time; more are answered with 503
SHUTDOWN_TIMEOUT_S = 3.0  # after the last request, or the time that requests are given
NOT_STARTED = 3  # as uvicorn's own command ends


class EndingServer(uvicorn.Server):
    """Exits at shutdown even if a thread still waits for a service that does not answer."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets=sockets)
        last = threading.Timer(SHUTDOWN_TIMEOUT_S, os._exit, args=(0,))
        last.daemon = True
        last.start()


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description="Lethe's web server")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--fd", type=int, help="a listening socket, instead of host and port")
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--timeout-graceful-shutdown", type=int, default=20)
    environment.raise_open_files_limit()
    options: dict[str, Any] = vars(parser.parse_args())
    instance_settings()
    gc.disable()  # of the modules nothing is garbage, and looking for it takes a sixth of the time of loading them
    import_module("server.main")
    gc.freeze()
    gc.enable()
    with suppress(OSError):  # it is started again when it is needed
        parsing_process(os.getpid()).start()
    config = uvicorn.Config(
        "server.main:create_app",
        factory=True,
        http="h11",  # httptools keeps any number of bytes of a head
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        limit_concurrency=MAX_CONNECTIONS,
        proxy_headers=False,
        access_log=False,
        **options,
    )
    server = EndingServer(config)
    with suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        sys.exit(NOT_STARTED)
