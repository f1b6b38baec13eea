"""Updates that change a row only while it still is what the caller believes."""

from sqlalchemy import Delete, Update
from sqlalchemy.engine import CursorResult
from sqlalchemy.orm import Session


def changes_one_row(session: Session, statement: Update) -> bool:
    """Run an update whose conditions name one row and its expected state. Return False if that is no longer so."""
    return changed_rows(session, statement) == 1


def changed_rows(session: Session, statement: Update | Delete) -> int:
    """Run an update or a deletion. Return how many rows it changed."""
    result = session.execute(statement)
    return result.rowcount if isinstance(result, CursorResult) else 0
