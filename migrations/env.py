"""Alembic's entry: runs the migrations on the URL it is given, else on the instance's own."""

from typing import Any, Literal

from alembic import context
from sqlalchemy import Connection

from server.config import get_settings
from server.db import UtcDateTime, make_engine
from server.models.registry import metadata


def render(kind: str, item: Any, _context: Any) -> str | Literal[False]:
    """Write our column type as the plain one, so that old revisions never depend on today's code."""
    return "sa.DateTime(timezone=True)" if kind == "type" and isinstance(item, UtcDateTime) else False


def _let_tables_be_rebuilt(connection: Connection) -> None:
    """SQLite changes a table by writing it anew and dropping the old one; what refers to it must not object meanwhile.

    The switch works only outside of a transaction, and for this connection alone.
    """
    driver = connection.connection.dbapi_connection
    if connection.dialect.name == "sqlite" and driver is not None:
        driver.execute("PRAGMA foreign_keys=OFF")


def run() -> None:
    url = context.config.get_main_option("sqlalchemy.url") or get_settings().resolved_database_url
    engine = make_engine(url)
    with engine.connect() as connection:
        _let_tables_be_rebuilt(connection)
        context.configure(
            connection=connection,
            target_metadata=metadata,
            render_as_batch=connection.dialect.name == "sqlite",
            compare_type=True,
            render_item=render,
            transaction_per_migration=True,
        )
        with context.begin_transaction():
            context.run_migrations()
    engine.dispose()


run()
