"""`python -m server`: the web server's process. uvicorn, with a limit on how long a request may be in coming.

Addresses are believed from configured proxies only: the application sees to that (server.main), so uvicorn must not.
"""

import argparse
import asyncio
import fcntl
import gc
import os
import socket
import sys
import termios
import threading
from contextlib import suppress
from importlib import import_module
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from server import open_files
from server.private_files import instance_settings

HEAD_WITHIN_S = 10.0
MOST_HEAD_BYTES = 32 << 10  # of a request's address and headers; and of what follows a piece of a body unread
SILENT_S = 30.0  # between two pieces of a body
UNTAKEN_S = 120.0  # in which nothing of an answer is taken; a slow reader's system takes it in pieces of its own size
CHECKED_EVERY_S = 5.0
ENDS_WITHIN_S = 3.0  # after the last request, or the time that requests are given
NOT_STARTED = 3  # as uvicorn's own command ends
TOO_LONG = "The request's head is too long."


class ImpatientHttp(HttpToolsProtocol):
    """Ends a connection whose request does not come: the first by its opening, each by its head, or silent in its body;
    and one that does not take its answers.

    uvicorn itself waits for ever for what has begun, and only ends connections that wait for a further request. Nor
    does it limit a head: its parser keeps any number of bytes until a header is whole, and copies them for each piece.
    """

    _ends_at: float | None = None
    _unread = 0  # bytes since the last head or piece of a body was whole
    _untaken = 0  # bytes of answers when it was last looked, here and in the kernel
    _taken_at = 0.0
    _check: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._taken_at = self.loop.time()
        self._ends_at = self._taken_at + HEAD_WITHIN_S
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._check is not None:
            self._check.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unread += len(data)
        super().data_received(data)
        if self._unread > MOST_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response(TOO_LONG)

    def on_message_begin(self) -> None:
        self._ends_at = self.loop.time() + HEAD_WITHIN_S
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._ends_at, self._unread = self.loop.time() + SILENT_S, 0
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > MOST_HEAD_BYTES:
            raise ValueError(TOO_LONG)  # what the parser's caller answers with 400
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self.cycle.response_complete:  # else nobody reads what still comes of a body that was answered already
            self._ends_at = self.loop.time() + SILENT_S
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._ends_at, self._unread = None, 0
        super().on_message_complete()

    def resume_writing(self) -> None:
        self._taken_at = self.loop.time()
        super().resume_writing()

    def _look(self) -> None:
        """End the connection if its time is over. One timer for all its requests, since most are quick."""
        if self._ends_at is not None and self.loop.time() > self._ends_at and not self._is_paused():
            self.transport.close()  # once its answers are taken
        if self._is_stuck():
            self.transport.abort()
            return
        self._check = self.loop.call_later(CHECKED_EVERY_S, self._look)

    def _is_stuck(self) -> bool:
        """Return whether nothing of what waits to be sent was taken for long: it would lie in memory for ever."""
        now, left = self.loop.time(), self.transport.get_write_buffer_size() + self._in_kernel()
        if left == 0 or left < self._untaken:
            self._taken_at = now
        self._untaken = left
        return now - self._taken_at > UNTAKEN_S

    def _in_kernel(self) -> int:
        """Return how many bytes the kernel holds that the other end has not taken; 0 where it cannot be asked.

        It takes more from us only once a third of its own megabytes is free, which a slow reader needs minutes for.
        """
        connection = self.transport.get_extra_info("socket")
        if connection is None:
            return 0
        try:
            held = fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4))
        except (OSError, ValueError):
            return 0
        return int.from_bytes(held, sys.byteorder)

    def _is_paused(self) -> bool:
        """Return whether it is we who do not read, since the application has not taken what came."""
        return self.flow is not None and self.flow.read_paused


class EndingServer(uvicorn.Server):
    """Ends its process also where a thread still waits for something silent: nobody waits for its answer any more."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets=sockets)
        last = threading.Timer(ENDS_WITHIN_S, os._exit, args=(0,))
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
    open_files.raise_limit()
    options: dict[str, Any] = vars(parser.parse_args())
    instance_settings()
    gc.disable()  # of the modules nothing is garbage, and looking for it takes a sixth of the time of loading them
    import_module("server.main")
    gc.freeze()
    gc.enable()
    config = uvicorn.Config(
        "server.main:create_app", factory=True, http=ImpatientHttp, proxy_headers=False, access_log=False, **options
    )
    server = EndingServer(config)
    with suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        sys.exit(NOT_STARTED)
