"""A copy of the database in a folder: made, loaded, and loaded into a scratch database to look at."""

import os
import secrets
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
from sqlalchemy import URL, make_url

from lethe.errors import HostFault
from server.db import CONNECT_TIMEOUT_S, TCP, make_engine
from server.errors import Conflict

SQLITE_COPY, POSTGRES_COPY = "lethe.db", "lethe.dump"
CREATE_TIMEOUT_S = 600.0  # to create or drop one

CHECK_INTERVAL_S = 15.0  # whether PostgreSQL answers, while one of its programs works

UNRESPONSIVE_AFTER_S = 60.0  # after which that program is ended: it would wait for ever

LIMITS = {name: str(value) for name, value in ({"connect_timeout": CONNECT_TIMEOUT_S} | TCP).items()}


@contextmanager
def restored(url: str, folder: Path) -> Iterator[str]:
    """Yield the address of a database that holds the backup's rows, and remove it afterwards."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        with tempfile.TemporaryDirectory(prefix="lethe-restore-", dir=folder.parent) as scratch:
            copy = Path(scratch) / SQLITE_COPY
            shutil.copyfile(folder / SQLITE_COPY, copy)
            yield f"sqlite:///{copy}"
        return
    name = f"lethe_restore_{secrets.token_hex(4)}"
    engine = make_engine(url, statement_within_s=CREATE_TIMEOUT_S).execution_options(isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name} TEMPLATE template0")
        try:
            target = parsed.set(database=name).render_as_string(hide_password=False)
            load(target, folder)
            yield target
        finally:
            with engine.connect() as connection:
                connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        engine.dispose()


def dump(url: str, folder: Path) -> str:
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        copy = folder / SQLITE_COPY
        with closing(sqlite3.connect(str(parsed.database))) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
    else:
        _run("pg_dump", url, "--format=custom", "--no-owner", f"--file={folder / POSTGRES_COPY}")
    return parsed.get_backend_name()


def load(url: str, folder: Path) -> None:
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        target = Path(str(parsed.database))
        if target.exists():
            raise Conflict(f"{target} exists; restore into an instance that has no database yet")
        target.parent.mkdir(parents=True, exist_ok=True)
        with _in_place_of(target) as copy:
            shutil.copyfile(folder / SQLITE_COPY, copy)
    else:
        _run("pg_restore", url, "--no-owner", "--exit-on-error", "--single-transaction", str(folder / POSTGRES_COPY))


@contextmanager
def _in_place_of(target: Path) -> Iterator[Path]:
    """Yield the name of a file that becomes `target` once it is whole: a disk may be full half-way."""
    copy = target.with_name(f".{target.name}-{secrets.token_hex(4)}")
    try:
        yield copy
        copy.replace(target)
    finally:
        copy.unlink(missing_ok=True)


def _run(program: str, url: str, *arguments: str) -> None:
    """Run one of PostgreSQL's programs as long as the server answers; the password goes by the environment."""
    parsed = make_url(url)
    parsed = parsed.set(drivername="postgresql", query={**LIMITS, **parsed.query})
    address = parsed.set(password=None).render_as_string(hide_password=False)
    environment = os.environ | ({"PGPASSWORD": str(parsed.password)} if parsed.password else {})
    try:
        process = subprocess.Popen(
            [program, f"--dbname={address}", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
    except FileNotFoundError as error:
        raise HostFault(f"{program} is not on PATH: install PostgreSQL's client programs") from error
    with process:
        try:
            said = _said_at_end(process, program, parsed)
        finally:
            process.kill()
    if process.returncode:
        raise HostFault(f"{program} failed: {said.strip()[-500:]}")


def _said_at_end(process: subprocess.Popen[str], program: str, server: URL) -> str:
    """Return what a program has written to standard error. Raises HostFault where the server is silent for long."""
    answered = time.monotonic()
    while time.monotonic() < answered + UNRESPONSIVE_AFTER_S:
        try:
            return process.communicate(timeout=CHECK_INTERVAL_S)[1]
        except subprocess.TimeoutExpired:
            if not _is_silent(server):
                answered = time.monotonic()
    raise HostFault(f"{program} was ended: PostgreSQL was silent for {UNRESPONSIVE_AFTER_S:.0f} s")


def _is_silent(server: URL) -> bool:
    """Return whether nothing answers; a server that refuses a connection does, and the program hears of it too."""
    try:
        psycopg.connect(server.render_as_string(hide_password=False)).close()
    except psycopg.errors.ConnectionTimeout:
        return True
    except psycopg.OperationalError:
        return False
    return False
