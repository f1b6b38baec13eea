"""Outgoing e-mails and webhook deliveries: stored with the act, sent by a task of their own, tried again at growing
intervals. So no request waits for a receiver, nothing is sent that was undone, and nothing is forgotten."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import TypeVar

import structlog
from sqlalchemy.orm import Session

from server.config import get_settings
from server.db import Database
from server.jobs.leases import Retries
from server.models.notification import Delivery, DeliveryState, QueuedEmail

log = structlog.get_logger()

RETRY_AFTER = tuple(timedelta(minutes=minutes) for minutes in (1, 5, 30, 120, 360, 720))
Retried = TypeVar("Retried", Delivery, QueuedEmail)
Attempt = TypeVar("Attempt")


def is_due(database: Database, messages: Retries[Retried], *, at: datetime) -> bool:
    """Return whether there is something to send now."""
    with database.read() as session:
        return bool(messages.due(session, at, limit=1))


def take(
    database: Database,
    messages: Retries[Retried],
    read: Callable[[Session, Retried], Attempt | None],
    *,
    at: datetime,
    limit: int,
) -> list[Attempt]:
    """Claim up to `limit` due messages for one attempt. read: what is sent, None if there is no recipient."""
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
    database: Database, messages: Retries[Retried], row_id: str, *, error: str = "", is_permanent: bool = False
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


SUBJECT_LENGTH = 300


def sends_mail() -> bool:
    """Return whether this instance sends mail at all."""
    return bool(get_settings().smtp_host)


def queue_mail(session: Session, *, to: str, subject: str, body: str) -> bool:
    """Store one e-mail of plain text. Return False, and store nothing, where mail is off."""
    return queue_mails(session, (to,), subject=subject, body=body) == 1


def queue_mails(session: Session, addresses: Iterable[str], *, subject: str, body: str) -> int:
    """Store the same e-mail to each address, one mail each. Return how many."""
    if not sends_mail():
        return 0
    line = " ".join(subject.split())[:SUBJECT_LENGTH]
    mails = [QueuedEmail(address=address, subject=line, body=body) for address in addresses]
    session.add_all(mails)
    return len(mails)


def page_url(path: str) -> str:
    """Return the address at which people reach a page of this instance."""
    settings = get_settings()
    return (settings.public_url or f"http://{settings.host}:{settings.port}").rstrip("/") + path
