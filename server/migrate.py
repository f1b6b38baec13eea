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
from sqlalchemy import make_url
from sqlalchemy.exc import OperationalError

import migrations
from server.db import make_engine
from server.errors import Conflict

log = structlog.get_logger()
LOCK_NOT_AVAILABLE = "55P03"
AGAIN_AFTER_S = 1.0
NEWER = "The database was made by a newer version of Lethe: install that version, or restore a backup of this one's"
WITHIN_S = 600.0


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


def upgrade(url: str, *, within_s: float = WITHIN_S) -> None:
    """Bring the database at `url` to the newest revision, while others use it.

    A step that does not get its table at once gives up, so that nobody has to wait behind it, and is tried again until
    `within_s` is over; what was done before it stays done. Then raises what the database said. Raises
    Conflict if a newer version of Lethe has made the database.
    """
    deadline = time.monotonic() + within_s
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
            time.sleep(AGAIN_AFTER_S)
        else:
            return
