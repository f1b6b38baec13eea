"""The web server's process: limits of a request's head, and its end."""

import signal
import socket
import subprocess
import sys
import time

import pytest

from server.serve import MAX_HEAD_BYTES
from tests.support.ports import free_port
from tests.support.web_process import web_process

SLEEPER = """
import asyncio, signal, sys, time, uvicorn
from server import serve

async def app(scope, receive, send):
    print("asked", flush=True)
    await asyncio.to_thread(time.sleep, 60)

signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what the kernel does with it in a container's first process
serve.SHUTDOWN_TIMEOUT_S = 0.5
serve.EndingServer(uvicorn.Config(app, port=int(sys.argv[1]), lifespan="off", timeout_graceful_shutdown=1)).run()
"""


def test_sigterm_ends_a_process_whose_thread_waits() -> None:
    port = free_port()
    with subprocess.Popen([sys.executable, "-c", SLEEPER, str(port)], stdout=subprocess.PIPE) as process:
        connection = connect_soon(port)
        with connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert process.stdout is not None
            assert process.stdout.readline() == b"asked\n"
            process.send_signal(signal.SIGTERM)
            try:
                assert process.wait(20) == 0
            finally:
                process.kill()


def connect_soon(port: int) -> socket.socket:
    deadline = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


TOO_LONG = b"a" * (2 * MAX_HEAD_BYTES)
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
REFUSED = (
    b"GET / HTTP/1.1\r\nX: " + TOO_LONG,
    b"GET /" + TOO_LONG,
    b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 5000 + TOO_LONG,
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    CHUNKED + b"1;x=" + TOO_LONG,
)


@pytest.mark.parametrize("sent", REFUSED, ids=("header", "address", "headers", "two-hosts", "chunk-extension"))
def test_head_that_is_too_long_or_has_two_hosts_is_refused(sent, tmp_path, migrated_sqlite_url):
    with (
        web_process(tmp_path, LETHE_DATABASE_URL=migrated_sqlite_url, LETHE_HOME=str(tmp_path)) as port,
        socket.create_connection(("127.0.0.1", port), timeout=60) as connection,
    ):
        connection.sendall(sent)
        assert connection.recv(100).startswith(b"HTTP/1.1 400 ")
