"""Looks at what an instance needs on this host, and says for each thing that is wrong how to fix it."""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from alembic.script import ScriptDirectory
from kombu.exceptions import OperationalError as BrokerError
from pydantic import ValidationError
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from lethe.errors import AppError, NotFound
from server.config import Settings
from server.db import Database, clock, database_message
from server.environment import describe_wrong_values, unknown_variables
from server.migrate import NEWER, alembic_config
from server.queue import client
from server.storage import Storage

MIN_FREE_MIB = 5 * 1024
CLOCK_TOLERANCE_S = 2.0
PYTHONS = ((3, 11), (3, 15))


@dataclass(frozen=True)
class Finding:
    """The result of one check. `fix` says what to do where the state is not "ok"."""

    name: str
    state: Literal["ok", "warning", "wrong"]
    found: str
    fix: str = ""


def examine(settings: Settings) -> Iterator[Finding]:
    """Yield what was found, one thing after the other."""
    checks: tuple[Callable[[Settings], Finding], ...] = (_python, _disk, _database, _clock, _queue, _storage)
    for check in checks:
        yield check(settings)


def read_settings() -> tuple[Settings | None, Finding]:
    """Return the settings, or None and what is wrong with them. No value is repeated: some are secrets."""
    try:
        settings = Settings()
    except ValidationError as error:
        wrong = describe_wrong_values(error, shown=False)
        return None, Finding("settings", "wrong", wrong, "docs/operators/settings.md lists what is allowed.")
    if unknown := unknown_variables(os.environ, Settings.model_fields):
        return settings, Finding("settings", "warning", " ".join(unknown), "Correct or remove them.")
    kind = f"{settings.environment}, {settings.worker_device} worker, sandbox {settings.sandbox_backend}"
    return settings, Finding("settings", "ok", kind)


def _python(_: Settings) -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if PYTHONS[0] <= sys.version_info[:2] < PYTHONS[1]:
        return Finding("python", "ok", version)
    return Finding("python", "warning", version, "Lethe is tested with Python 3.11 to 3.14; use one of them.")


def _disk(settings: Settings) -> Finding:
    folder = settings.home.absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free // 2**20
    free_space = f"{free:,} MiB free below {folder}"
    if free >= MIN_FREE_MIB:
        return Finding("disk", "ok", free_space)
    return Finding("disk", "warning", free_space, f"Free {MIN_FREE_MIB:,} MiB, run `lethe gc`, or move LETHE_HOME.")


def _database(settings: Settings) -> Finding:
    revisions = ScriptDirectory.from_config(alembic_config(settings.resolved_database_url))
    newest = revisions.get_current_head()
    try:
        with Database(settings.resolved_database_url) as database, database.read() as session:
            revision = session.execute(text("SELECT version_num FROM alembic_version")).scalar_one()
            kind = session.get_bind().dialect.name
            keeping = ("fsync", "synchronous_commit") if kind == "postgresql" else ()  # a commit, in a crash
            unsafe = [name for name in keeping if session.execute(text(f"SHOW {name}")).scalar_one() == "off"]
    except SQLAlchemyError as error:
        fix = "Start the database, check LETHE_DATABASE_URL, then bring it up: `lethe up` or `lethe migrate`."
        return Finding("database", "wrong", f"no answer ({database_message(error)})", fix)
    if revision != newest:
        wrong = f"{kind}, revision {revision}, this program needs {newest}"
        is_older = revision in {each.revision for each in revisions.walk_revisions()}
        return Finding("database", "wrong", wrong, "Run `lethe migrate`." if is_older else f"{NEWER}.")
    if unsafe:
        lost = f"{' and '.join(unsafe)} off: a crash loses submissions that were accepted"
        return Finding("database", "warning", f"{kind}, {lost}", "Turn it on in postgresql.conf.")
    return Finding("database", "ok", f"{kind}, revision {revision}")


def _clock(settings: Settings) -> Finding:
    try:
        with Database(settings.resolved_database_url) as database, database.read() as session:
            started = time.monotonic()
            theirs, ours = clock(session), datetime.now(UTC)
            took = time.monotonic() - started
    except SQLAlchemyError:
        return Finding("clock", "warning", "the database could not be asked for the time", "Fix the database first.")
    apart = abs((ours - theirs).total_seconds())
    if apart <= CLOCK_TOLERANCE_S + took:
        return Finding("clock", "ok", f"{apart:.3f} s from the database's")
    fix = "Run a time service (chrony, systemd-timesyncd). Leases go by the database's clock and stay right meanwhile."
    return Finding("clock", "warning", f"{apart:.0f} s from the database's", fix)


def _queue(settings: Settings) -> Finding:
    try:
        with client().connection_for_write() as connection:
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=2)
    except (BrokerError, OSError) as error:
        fix = "Start Redis and check LETHE_REDIS_URL. An embedded instance starts its own: `lethe up`."
        if not settings.redis_url:
            return Finding("queue", "warning", "the instance's own Redis does not run", fix)
        return Finding("queue", "wrong", f"no answer ({error})", fix)
    return Finding("queue", "ok", "Redis answers")


def _storage(settings: Settings) -> Finding:
    key = "health/doctor"
    try:
        storage = Storage(settings.resolved_storage_url)
        storage.write(key, b"ok")
        storage.read(key)
        storage.remove(key)
    except NotFound:
        return Finding("storage", "wrong", "the written file is not there", "The bucket must be read-after-write.")
    except (AppError, OSError, ImportError, ValueError) as error:
        fix = "Check LETHE_STORAGE_URL, its rights and its credentials; s3:// needs the package `s3fs`."
        return Finding("storage", "wrong", str(error)[:200], fix)
    return Finding("storage", "ok", "local folder" if storage.is_local else "remote, written and read")
