"""Changes to big tables that leave them in use: on PostgreSQL no lock is held for longer than a moment."""

from typing import Any

from alembic import op

LOCK_TIMEOUT = "2s"  # a change that does not get its table within it gives up, and is tried again


def add_index(name: str, table: str, columns: list[str], **options: Any) -> None:
    """Build an index while others read and write the table. Safe to run again after it was broken off."""
    if op.get_bind().dialect.name != "postgresql":
        op.create_index(name, table, columns, **options)
        return
    with op.get_context().autocommit_block():
        op.execute("SET lock_timeout = 0")  # it waits for older transactions, and nobody waits for it
        # What was broken off stays behind as an index that is kept up to date and never used.
        op.drop_index(name, table, postgresql_concurrently=True, if_exists=True)
        op.create_index(name, table, columns, postgresql_concurrently=True, **options)
        op.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'")


def remove_index(name: str, table: str) -> None:
    """Remove an index while others read and write the table."""
    if op.get_bind().dialect.name != "postgresql":
        op.drop_index(name, table)
        return
    with op.get_context().autocommit_block():
        op.execute("SET lock_timeout = 0")
        op.drop_index(name, table, postgresql_concurrently=True, if_exists=True)
        op.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
