"""How often and for how long something that waits is tried. A worker's sweep says that something is due; a task of its
own sends it, so that a slow receiver delays nothing but itself."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeVar

import structlog
from sqlalchemy.orm import Session

from server.db import Database
from server.models.notification import Delivery, DeliveryState, QueuedEmail
from server.notifications import notification_repository

log = structlog.get_logger()

RETRY_AFTER = tuple(timedelta(minutes=minutes) for minutes in (1, 5, 30, 120, 360, 720))
Row = TypeVar("Row", Delivery, QueuedEmail)
Attempt = TypeVar("Attempt")


def take(
    database: Database,
    table: type[Row],
    read: Callable[[Session, Row], Attempt | None],
    *,
    at: datetime,
    limit: int,
) -> list[Attempt]:
    """Take an attempt at up to `limit` messages that are due. Nobody else has any of them before its next time.

    read: gives what is sent of a row, or None if there is nobody left to send it to.
    """
    attempts = []
    with database.write() as session:
        for row in notification_repository.due(session, table, at, limit=limit):
            attempt = read(session, row)
            if attempt is None:
                notification_repository.end(
                    session, table, row.id, state=DeliveryState.FAILED, error="the receiver was removed"
                )
            elif notification_repository.take(
                session, row, until=at + RETRY_AFTER[min(row.attempts, len(RETRY_AFTER) - 1)]
            ):
                attempts.append(attempt)
    return attempts


def note_sent(database: Database, table: type[Row], row_id: str) -> None:
    with database.write() as session:
        notification_repository.end(session, table, row_id, state=DeliveryState.SENT, error="")


def note_failure(
    database: Database, table: type[Row], row_id: str, *, attempt: int, error: str, is_permanent: bool = False
) -> None:
    """Remember why an attempt failed. After the last one, or where another cannot help, the message is given up."""
    log.warning("not delivered", table=table.__tablename__, message=row_id, attempt=attempt, error=error)
    with database.write() as session:
        if is_permanent or attempt >= len(RETRY_AFTER):
            notification_repository.end(session, table, row_id, state=DeliveryState.FAILED, error=error)
        else:
            notification_repository.note_error(session, table, row_id, error)
