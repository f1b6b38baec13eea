"""Connections whose requests never come are ended, and others are not."""

import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import server
from tests.support.impatient_server import SILENT_S, UNTAKEN_S
from tests.support.ports import free_port
from tests.support.web_process import web_process


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory, _migrated_sqlite: Path) -> Iterator[int]:
    """Of one process for all: what becomes of a connection concerns no other."""
    home = tmp_path_factory.mktemp("home")
    database = shutil.copyfile(_migrated_sqlite, home / "lethe.db")
    environment = {"LETHE_DATABASE_URL": f"sqlite:///{database}", "LETHE_HOME": str(home)}
    with web_process(home, module="tests.support.impatient_server", **environment) as port:
        yield port


def ended_after_s(port: int, begun: bytes, dribble: bytes = b"") -> float:
    """Return after how long the server ends a connection that began so and sends one more byte from time to time."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(0.3)
        connection.sendall(begun)
        began = time.monotonic()
        while time.monotonic() - began < 20:
            try:
                with suppress(TimeoutError):
                    if connection.recv(1000) == b"":
                        return time.monotonic() - began
                connection.sendall(dribble)
            except ConnectionError:
                return time.monotonic() - began
    return 99.0


VEGA = Path(server.__file__).parent / "static" / "vendor" / "vega" / "vega.min.js"
HEAD = b"POST /api/v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n"


def test_half_open_connections_are_ended(port: int) -> None:
    for begun, dribble in ((b"", b""), (b"GET / HT", b""), (b"GET / HTTP/1.1\r\nX: ", b"x"), (HEAD, b"")):
        assert ended_after_s(port, begun, dribble) < 15, begun


def test_connection_that_is_used_is_kept(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for _ in range(3):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            connection.settimeout(60)
            answer = b""
            while b'{"status":"ok"}' not in answer:  # head and body may come apart
                part = connection.recv(4000)
                assert part, answer
                answer += part
            assert answer.startswith(b"HTTP/1.1 200 OK")
            time.sleep(0.8 * SILENT_S)


ASKED = 12
ASK = b"GET /static/0/vendor/vega/vega.min.js HTTP/1.1\r\nHost: x\r\n\r\n" * ASKED
ANSWERED = ASKED * VEGA.stat().st_size
PIECES = int(2.5 * UNTAKEN_S / 0.1)


def taken(connection: socket.socket) -> int:
    """Return how many bytes come until the end, or until nothing has come for long."""
    connection.settimeout(60)
    got = 0
    with suppress(ConnectionError):
        while got < ANSWERED and (part := connection.recv(1 << 20)):
            got += len(part)
    return got


@pytest.mark.parametrize(("piece_bytes", "is_kept"), [(0, False), (2000, True)])
def test_connection_is_kept_while_it_takes_something(port: int, piece_bytes: int, is_kept: bool) -> None:
    """Also if that is less than the kernel's own buffer holds: it makes no room in ours for minutes."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", port))
        connection.sendall(ASK)
        for _ in range(PIECES):
            time.sleep(0.1)
            piece = connection.recv(piece_bytes)
            assert len(piece) > 0 or piece_bytes == 0
        assert (taken(connection) + PIECES * piece_bytes >= ANSWERED) is is_kept


SLEEPER = """
import asyncio, signal, sys, time, uvicorn
from server import serve

async def app(scope, receive, send):
    print("asked", flush=True)
    await asyncio.to_thread(time.sleep, 60)

signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what the kernel does with it in a container's first process
serve.ENDS_WITHIN_S = 0.5
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
