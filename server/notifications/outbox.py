"""How often and for how long a message is tried. A worker's sweep says that something is due; a task of its own
sends it, so that a slow receiver delays nothing but itself."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeVar

import structlog
from sqlalchemy.orm import Session

from server.db import Database
from server.jobs.retries import Retries
from server.models.notification import Delivery, DeliveryState, QueuedEmail

log = structlog.get_logger()

RETRY_AFTER = tuple(timedelta(minutes=minutes) for minutes in (1, 5, 30, 120, 360, 720))
Row = TypeVar("Row", Delivery, QueuedEmail)
Attempt = TypeVar("Attempt")


def is_due(database: Database, messages: Retries[Row], *, at: datetime) -> bool:
    """Return whether there is something to send now."""
    with database.read() as session:
        return bool(messages.due(session, at, limit=1))


def take(
    database: Database,
    messages: Retries[Row],
    read: Callable[[Session, Row], Attempt | None],
    *,
    at: datetime,
    limit: int,
) -> list[Attempt]:
    """Begin an attempt at up to `limit` messages that are due. Nobody else has any of them before its next time.

    read: gives what is sent of a row, or None if there is nobody left to send it to.
    """
    attempts = []
    with database.write() as session:
        for row in messages.due(session, at, limit=limit):
            attempt = read(session, row)
            until = at + RETRY_AFTER[min(row.attempts, len(RETRY_AFTER) - 1)]
            if attempt is None:
                _end(row, DeliveryState.FAILED, "the receiver was removed")
            elif messages.begin(session, row.id, row.attempts, until=until):
                attempts.append(attempt)
    return attempts


def note_end(
    database: Database, messages: Retries[Row], row_id: str, *, error: str = "", is_permanent: bool = False
) -> None:
    """Note that a message arrived, or why not. Give up after the last attempt or a permanent error."""
    with database.write() as session:
        row = session.get(messages.table, row_id)
        if row is None:
            return  # its competition was deleted meanwhile
        if not error:
            _end(row, DeliveryState.SENT, "")
            return
        log.warning("not delivered", table=row.__tablename__, message=row_id, attempt=row.attempts, error=error)
        row.error = error
        if is_permanent or row.attempts >= len(RETRY_AFTER):
            _end(row, DeliveryState.FAILED, error)


def _end(row: Delivery | QueuedEmail, state: DeliveryState, error: str) -> None:
    row.state, row.error = state.value, error
    if isinstance(row, QueuedEmail):
        row.body = ""  # it may hold a secret link
