"""Real servers for every test process: PostgreSQL, Redis and SQLite, each with its own scratch folder.

Under pytest-xdist each worker is a process with servers of its own; each test has its own database.
"""

import gc
import os
import sys

# Before anything imports torch: several test processes share the cores, and spinning OpenMP threads would starve them.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis
from hypothesis import HealthCheck, settings

from server import db, environment
from server.config import get_settings
from server.embedded.redis import RedisProcess, start_redis
from server.migrate import upgrade
from tests.support import apart
from tests.support.apart import day_needed_s, find_chromium, until_next_day_s
from tests.support.postgres import EmptiedDatabase, Engines, PostgresServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytest_plugins = ["tests.support.selection"]

# Before anything is imported that asks for a temporary folder or a connection.
apart.own_folder()
apart.refuse_network()
apart.may_be_interrupted()
environment.raise_open_files_limit()  # a crowd of a thousand takes more than most shells allow

# What loading and collecting make stays: nothing of it is garbage, and looking for it takes a fifth of that time.
gc.disable()

# --- made-up inputs ---

# The same inputs each time, so that a failure is the change's that it follows; `--hypothesis-profile=searching` looks
# for new ones. A busy machine says nothing of how long an example takes.
ANY_SPEED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", ANY_SPEED, derandomize=True, database=None)
settings.register_profile("searching", ANY_SPEED, derandomize=False)
settings.load_profile("repeatable")

# --- what a machine may lack ---


@lru_cache
def _missing_gpu() -> str | None:
    import torch  # noqa: PLC0415 (takes seconds, and most tests never need it)

    return None if torch.cuda.is_available() else "no CUDA device on this machine"


def _missing_browser() -> str | None:
    return None if find_chromium() else "no Chromium on this machine (Debian: apt-get install chromium-headless-shell)"


NEEDS: dict[str, Callable[[], str | None]] = {"gpu": _missing_gpu, "browser": _missing_browser}


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker, missing in NEEDS.items():
        if item.get_closest_marker(marker) and (reason := missing()):
            pytest.skip(reason)
    time.sleep(until_next_day_s(datetime.now(UTC), needed_s=day_needed_s(item.nodeid)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    gc.freeze()
    gc.enable()


# --- settings ---


@pytest.fixture(autouse=True)
def _no_settings_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep a developer's own LETHE_ variables, ~/.lethe and remembered log-ins out of every test."""
    for name in [name for name in os.environ if name.startswith("LETHE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LETHE_HOME", str(tmp_path / "lethe-home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    get_settings.cache_clear()
    os.umask(0o022)  # as most users have it, whatever a test or a module's fixture before has set
    yield
    os.umask(0o022)  # the next module's fixtures come before its first test
    if builders := sys.modules.get("lethe.networks.builders"):  # else torch is not loaded either
        builders.limit_parameters(None)  # a worker sets it for its whole process
    get_settings.cache_clear()


# --- PostgreSQL and SQLite ---


@pytest.fixture(scope="session", autouse=True)
def _engines() -> Iterator[Engines]:
    engines = Engines(db.make_engine)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(db, "make_engine", engines.make)
        yield engines


@pytest.fixture(autouse=True)
def _closed_engines(_engines: Engines) -> Iterator[None]:
    yield
    _engines.close()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """An empty PostgreSQL database."""
    name = postgres_server.create_database()
    yield postgres_server.url(name)
    postgres_server.drop_database(name)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """An empty SQLite database."""
    return f"sqlite:///{tmp_path / 'lethe.db'}"


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """An empty database, once of each kind."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture(scope="session")
def _migrated_postgres(postgres_server: PostgresServer) -> str:
    name = postgres_server.create_database()
    upgrade(postgres_server.url(name))
    return name


@pytest.fixture(scope="session")
def _migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "lethe.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def _emptied_postgres(postgres_server: PostgresServer, _migrated_postgres: str) -> EmptiedDatabase:
    return EmptiedDatabase(postgres_server, template=_migrated_postgres)


@pytest.fixture
def migrated_postgres_url(_emptied_postgres: EmptiedDatabase) -> Iterator[str]:
    """A PostgreSQL database at the newest migration, with no rows of another test."""
    yield _emptied_postgres.url
    _emptied_postgres.empty()


@pytest.fixture
def migrated_sqlite_url(sqlite_url: str, _migrated_sqlite: Path) -> str:
    """A SQLite database at the newest migration, with no rows of another test."""
    shutil.copyfile(_migrated_sqlite, sqlite_url.removeprefix("sqlite:///"))
    return sqlite_url


@pytest.fixture(params=["sqlite", "postgres"])
def migrated_url(request: pytest.FixtureRequest) -> str:
    """A database at the newest migration, once of each kind."""
    return str(request.getfixturevalue(f"migrated_{request.param}_url"))


# --- Redis ---


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisProcess]:
    """The Redis of this test process. A test that stops or fills it takes `private_redis` instead."""
    with tempfile.TemporaryDirectory(prefix="lethe-redis-") as folder, start_redis(Path(folder)) as server:
        yield server


@pytest.fixture
def redis_url(redis_server: RedisProcess) -> str:
    """An empty Redis, as LETHE_REDIS_URL takes it; `redis_server.client_url` is the same for redis-py."""
    with redis.Redis.from_url(redis_server.client_url) as client:
        client.flushall()
    return redis_server.broker_url


@pytest.fixture
def private_redis() -> Iterator[RedisProcess]:
    """A Redis that this test may stop, starve or fill."""
    with tempfile.TemporaryDirectory(prefix="lethe-redis-") as folder, start_redis(Path(folder)) as server:
        yield server


# --- a browser ---


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """Chromium without a window. Mark the test `browser`, so that it is skipped where there is none.

    Of one module: while it is open, an event loop counts as running in this thread.
    """
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 (most tests never need it)

    with sync_playwright() as playwright:
        # Chromium's own sandbox refuses to run as root; it visits nothing but our own pages here.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        chromium = playwright.chromium.launch(executable_path=find_chromium(), args=arguments)
        yield chromium
        chromium.close()


@pytest.fixture
def browser_context(browser: "Browser") -> Iterator["BrowserContext"]:
    context = browser.new_context()
    yield context
    context.close()


@pytest.fixture
def page(browser_context: "BrowserContext") -> "Page":
    """A fresh page, with cookies of its own."""
    return browser_context.new_page()


# --- a network's own source ---


@pytest.fixture
def trusted_network_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process run a network that is Python text, as its author would on their own machine."""
    monkeypatch.setenv("LETHE_TRUST_NETWORK_SOURCE", "1")
