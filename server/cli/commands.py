"""The commands that run an instance: `lethe demo`, `up`, `close`, `migrate`, `backup` and their like."""

import sqlite3

import typer

from lethe.errors import AppError, HostFault
from server.cli import install_service, instance_commands, maintenance
from server.errors import Conflict

OTHER_SCHEMA = ("42P01", "42703")  # no such table, no such column


def register_commands(app: typer.Typer) -> None:
    """Add the operator's commands to `app`."""
    for module in (instance_commands, install_service, maintenance):
        module.register_commands(app)


def as_expected(error: Exception) -> AppError | None:
    """Return an error of the database or a full disk as a message for the operator, None for any other error."""
    from sqlalchemy.exc import DBAPIError, OperationalError

    from server.db import database_message
    from server.storage import FULL

    if isinstance(error, OSError) and error.errno in FULL:
        return HostFault(f"The disk is full: {error}")
    if isinstance(error, DBAPIError):
        said = database_message(error)
        if getattr(error.orig, "sqlstate", None) in OTHER_SCHEMA or said.startswith("no such "):
            return Conflict(f"The database is not at this version's schema: run `lethe migrate` ({said})")
    if isinstance(error, (OperationalError, sqlite3.OperationalError)):
        return HostFault(f"The database failed: {database_message(error)}. `lethe doctor` looks at what it needs.")
    return None
