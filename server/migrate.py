"""Brings a database to the present schema, and makes new revisions from the models."""

import time
from pathlib import Path

import structlog
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.script.revision import ResolutionError
from alembic.util import CommandError
from sqlalchemy import func, make_url, select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

import migrations
from server import last_times
from server.db import database_time, make_engine
from server.errors import Conflict
from server.last_times import Upkeep
from server.models.worker import Worker, WorkerState

log = structlog.get_logger()
LOCK_NOT_AVAILABLE = "55P03"
RETRY_AFTER_S = 1.0
NEWER = "The database was made by a newer version of Lethe: install that version, or restore a backup of this one's"
TIMEOUT_S = 600.0
WORKER_SILENT_S = 120.0  # after which a worker is taken for stopped
MAX_BACKUP_AGE_S = 3600.0


def alembic_config(url: str) -> Config:
    """Return Alembic's configuration for the database at `url`."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.set_main_option("path_separator", "os")
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    return config


def is_migrated(url: str) -> bool:
    """Return whether the database at `url` is at the newest revision. Makes nothing."""
    return current_revision(url) == ScriptDirectory.from_config(alembic_config(url)).get_current_head()


def current_revision(url: str) -> str | None:
    """Return the revision of the database at `url`, None for an empty one or none. Makes nothing."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite" and not Path(parsed.database or "").exists():
        return None
    engine = make_engine(url)
    try:
        with engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()
    finally:
        engine.dispose()


def downgrade(url: str, revision: str) -> None:
    """Take the database at `url` back to an older revision, with what only newer ones hold removed.

    Raises Conflict unless the revision is older than the database's, nothing else is connected or at work, and a
    backup of the last hour was verified.
    """
    script = ScriptDirectory.from_config(alembic_config(url))
    present = current_revision(url)
    if present != script.get_current_head():
        raise Conflict(f"the database is at revision {present}, not at this program's {script.get_current_head()}")
    older = [each.revision for each in script.iterate_revisions(present, "base")][1:]
    if revision not in older:
        raise Conflict(f"{revision!r} is no revision before the database's {present}; those are {', '.join(older)}")
    engine = make_engine(url, statement_within_s=None)
    try:
        with Session(engine) as session:
            if reason := _why_not_down(session):
                raise Conflict(reason)
    finally:
        engine.dispose()
    command.downgrade(alembic_config(url), revision)


def _why_not_down(session: Session) -> str:
    if session.get_bind().dialect.name == "postgresql":
        others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        if connected := session.scalar(text(others)):
            return f"{connected} other connections use the database: stop web servers, workers, scheduler and backups"
    alive = Worker.seen_at > database_time(-WORKER_SILENT_S), Worker.state != WorkerState.STOPPED.value
    at_work = session.scalar(select(func.count()).select_from(Worker).where(*alive))
    if at_work:
        return f"{at_work} worker processes were heard of within {WORKER_SILENT_S:g} s: stop them, and wait that long"
    age_s = last_times.ages_s(session).get(Upkeep.VERIFIED_BACKUP)
    if age_s is None or age_s > MAX_BACKUP_AGE_S:
        return "no backup of the last hour was verified: run lethe backup FOLDER, then lethe verify-backup FOLDER"
    return ""


def upgrade(url: str) -> None:
    """Bring the database at `url` to the newest revision, while others use it.

    A step that cannot lock its table at once gives up, so that no query waits behind it, and is retried for TIMEOUT_S;
    finished steps stay. Raises the database's error then, Conflict if a newer version of Lethe made the database.
    """
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            command.upgrade(alembic_config(url), "head")
        except CommandError as error:
            if isinstance(error.__cause__, ResolutionError):
                raise Conflict(f"{NEWER} ({error})") from error
            raise
        except OperationalError as error:
            if getattr(error.orig, "sqlstate", None) != LOCK_NOT_AVAILABLE or time.monotonic() > deadline:
                raise
            log.warning("a table is in use, the migration tries again")
            time.sleep(RETRY_AFTER_S)
        else:
            return
