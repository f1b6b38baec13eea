"""The web server's process: limits of a request's head, its end, and services that are silent."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

from server import db
from server.accounts import accounts
from server.competitions import competitions
from server.db import Database
from server.models.account import Role
from server.models.competition import CompetitionState
from server.serve import MAX_HEAD_BYTES
from tests.support.black_hole import BlackHole, black_hole
from tests.support.instance import competition_toml
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer
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


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[BlackHole]:
    with black_hole(postgres_server.folder / ".s.PGSQL.5432") as proxy:
        yield proxy


def through(proxy: BlackHole, url: str) -> str:
    return f"postgresql://postgres@127.0.0.1:{proxy.port}/{make_url(url).database}"


@contextmanager
def taking_less_than(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


@pytest.mark.slow
def test_silent_pool_is_discarded_and_refuses_at_once(proxy: BlackHole, migrated_postgres_url: str) -> None:
    database = Database(through(proxy, migrated_postgres_url))
    held = [database.engine.connect() for _ in range(10)]
    for connection in held:
        connection.close()
    with proxy.silent():
        with taking_less_than(10), pytest.raises(OperationalError), database.read() as session:
            session.execute(text("SELECT 1"))
        with taking_less_than(0.5), pytest.raises(OperationalError, match="a moment ago"), database.read() as session:
            session.execute(text("SELECT 1"))
    assert database.retrying(lambda session: session.scalar(text("SELECT 1"))) == 1
    database.dispose()


def test_silent_statement_ends_and_its_connection_is_dropped(proxy: BlackHole, migrated_postgres_url: str) -> None:
    engine = db.make_engine(through(proxy, migrated_postgres_url), statement_within_s=0.5)
    with engine.connect() as connection:
        connection.execute(text("SELECT 1"))
        with proxy.silent():
            with taking_less_than(6), pytest.raises(OperationalError, match="silent for") as caught:
                connection.execute(text("SELECT 2"))
            assert caught.value.connection_invalidated
    engine.dispose()


def test_statement_that_takes_too_long_is_ended_by_the_server(migrated_postgres_url: str) -> None:
    engine = db.make_engine(migrated_postgres_url, statement_within_s=0.3)
    with (
        taking_less_than(5),
        pytest.raises(OperationalError, match="statement timeout"),
        engine.connect() as connection,
    ):
        connection.execute(text("SELECT pg_sleep(20)"))
    engine.dispose()


def add_competition(url: str) -> None:
    database = Database(url)
    with database.write() as session:
        owner = accounts.register(session, name="olga", password="a long password", role=Role.ORGANISER)
        competitions.create(session, competition_toml(), organiser=owner).state = CompetitionState.OPEN.value
    database.dispose()


@pytest.mark.slow
def test_web_process_before_a_silent_database(proxy, migrated_postgres_url, redis_url, tmp_path):
    """Its boards are shown as they were, writes are refused with a sentence, and it is not ready."""
    add_competition(migrated_postgres_url)
    environment = {
        "LETHE_DATABASE_URL": through(proxy, migrated_postgres_url),
        "LETHE_REDIS_URL": redis_url,
        "LETHE_HOME": str(tmp_path),
    }
    with (
        web_process(tmp_path, **environment) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as client,
    ):
        assert client.get("/readyz").status_code == 200
        assert client.get("/", headers={"Accept": "text/html"}).status_code == 200
        board = "/api/v1/competitions/digits/leaderboard"
        assert client.get(board).json()["as_of"] is None
        with proxy.silent():
            with taking_less_than(15):
                refused = client.post("/api/v1/tokens", json={"name": "ada", "password": "long enough"})
            assert refused.status_code == 503
            assert "database does not answer" in refused.json()["detail"]
            with taking_less_than(15):
                shown = [client.get("/", headers=headers) for headers in ({}, {"Cookie": "lethe_session=somebody"})]
            assert [page.status_code for page in shown] == [200, 200]
            assert ["as everybody saw it on" in page.text for page in shown] == [True, True]
            with taking_less_than(5):
                kept, other = client.get(board), client.get(board, params={"q": "x"})
                assert kept.status_code == 200
                assert kept.json()["as_of"] in kept.headers["Warning"]
                assert other.status_code == 503, "what nobody asked for is not known"
                assert client.get("/readyz").status_code == 503
                assert 'lethe_service_answers{service="database"} 0.0' in client.get("/metrics").text
                assert client.get("/healthz").status_code == 200
