"""Alembic's entry: runs the migrations on the URL it is given, else on the instance's own."""

import time
from typing import Any, Literal

from alembic import context
from sqlalchemy import Connection, Engine

from migrations.online import LOCK_TIMEOUT
from server.config import get_settings
from server.db import UtcDateTime, make_engine
from server.models.registry import metadata

TURN = 0x6C65746865  # the advisory lock of Lethe's migrations


def render(kind: str, item: Any, _context: Any) -> str | Literal[False]:
    """Write our column type as the plain one, so that old revisions never depend on today's code."""
    return "sa.DateTime(timezone=True)" if kind == "type" and isinstance(item, UtcDateTime) else False


def _let_tables_be_rebuilt(connection: Connection) -> None:
    """SQLite changes a table by writing it again and dropping the old one; what refers to it must not object meanwhile.

    The switch works only outside of a transaction, and for this connection alone.
    """
    driver = connection.connection.dbapi_connection
    if connection.dialect.name == "sqlite" and driver is not None:
        driver.execute("PRAGMA foreign_keys=OFF")


def _wait_for_turn(connection: Connection) -> None:
    """Let one migration run at a time, until this connection ends. Asks again and again instead of waiting in a
    transaction, for which an index that is built beside it would wait in turn."""
    if connection.dialect.name != "postgresql":
        return
    while not connection.exec_driver_sql(f"SELECT pg_try_advisory_lock({TURN})").scalar():
        connection.commit()
        time.sleep(0.5)
    connection.commit()


def _wait_briefly_for_locks(connection: Connection) -> None:
    """Let a change that waits for a table give up soon: whoever comes after it waits behind it meanwhile.

    `server.migrate` tries again.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
        connection.commit()


def _migrate(engine: Engine) -> None:
    with engine.connect() as connection:
        _wait_for_turn(connection)
        _wait_briefly_for_locks(connection)
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


def run() -> None:
    url = context.config.get_main_option("sqlalchemy.url") or get_settings().resolved_database_url
    engine = make_engine(url, statement_within_s=None)  # a large table takes its time
    try:
        _migrate(engine)
    finally:
        engine.dispose()  # and so the turn ends, whatever came of it


run()
