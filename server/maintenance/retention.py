"""What is not kept for ever: logs of runs, ended log-ins, tokens, links and invitations, messages that were sent or
given up, workers that went away, datasets that nobody used."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, or_
from sqlalchemy.orm import InstrumentedAttribute, Session

from server.config import Settings
from server.datasets import datasets
from server.db import Database, changed_rows, clock
from server.maintenance.garbage_repository import Garbage, find_garbage, is_referred_to
from server.models.account import ApiToken, PasswordReset, WebSession
from server.models.evaluation import RunLog
from server.models.notification import Delivery, DeliveryState, QueuedEmail
from server.models.participation import Invitation
from server.storage import Storage
from server.workers import worker_repository
from server.workers.registration import REMOVED_AFTER_S

Expiring = type[WebSession] | type[ApiToken] | type[PasswordReset] | type[Invitation]
KEEP_MESSAGES = timedelta(days=30)  # who was notified of what, for as long as anybody asks

TimeColumn = InstrumentedAttribute[datetime | None]


@dataclass(frozen=True)
class Expired:
    """How many rows went."""

    run_logs: int
    web_sessions: int
    api_tokens: int
    links: int  # for forgotten passwords, and invitations to teams
    messages: int  # mails and deliveries to webhooks
    datasets: int  # uploaded and never used


def expire(session: Session, settings: Settings, *, at: datetime) -> Expired:
    """Remove what is older than it is kept. Scores, submissions and the audit log are never touched."""
    worker_repository.forget_silent(session, after_s=REMOVED_AFTER_S)
    datasets.forget_collected(session, at=at, keep_hours=settings.keep_garbage_hours)
    keep_logs_days, keep_unused_days = settings.keep_logs_days, settings.keep_unused_datasets_days
    old_logs, unused = at - timedelta(days=keep_logs_days), at - timedelta(days=keep_unused_days)
    return Expired(
        run_logs=changed_rows(session, delete(RunLog).where(RunLog.created_at < old_logs)) if keep_logs_days else 0,
        web_sessions=_ended(session, WebSession, WebSession.revoked_at, at=at),
        api_tokens=_ended(session, ApiToken, ApiToken.revoked_at, at=at),
        links=_ended(session, PasswordReset, PasswordReset.ended_at, at=at)
        + _ended(session, Invitation, Invitation.ended_at, at=at),
        messages=_settled(session, QueuedEmail, at=at) + _settled(session, Delivery, at=at),
        datasets=datasets.delete_unused(session, before=unused) if keep_unused_days else 0,
    )


def _ended(session: Session, table: Expiring, ended_at: TimeColumn, *, at: datetime) -> int:
    return changed_rows(session, delete(table).where(or_(table.expires_at < at, ended_at < at)))


def _settled(session: Session, table: type[QueuedEmail | Delivery], *, at: datetime) -> int:
    old = table.state != DeliveryState.WAITING.value, table.created_at < at - KEEP_MESSAGES
    return changed_rows(session, delete(table).where(*old))


def collect(database: Database, storage: Storage, *, keep_hours: float, delete: bool) -> list[Garbage]:
    """Return what nothing refers to, and remove it if `delete` is set.

    A list of files is old when its last is removed: before each removal, rows and file are looked at again. Whoever
    stores a content writes it again, which makes it too young to be collected.
    """
    with database.read() as session:
        older_than = clock(session) - timedelta(hours=keep_hours)
        unused = list(find_garbage(session, storage, older_than=older_than))
    if not delete:
        return unused
    return [garbage for garbage in unused if _remove(database, storage, garbage, older_than=older_than)]


def _remove(database: Database, storage: Storage, garbage: Garbage, *, older_than: datetime) -> bool:
    """Remove the file if it is garbage still. Return whether it was removed."""
    key = garbage.file.key
    with database.read() as session:
        if is_referred_to(session, key):
            return False
    written_at = storage.written_at(key)
    if written_at is None or written_at >= older_than:
        return False  # gone, or written again
    content = storage.read(key) if key.startswith("submissions/") else None
    storage.remove(key)
    return content is None or not _came_back(database, storage, key, content)


def _came_back(database: Database, storage: Storage, key: str, content: bytes) -> bool:
    """Write a content back if a submission of it was stored while it was removed. Return whether one was."""
    with database.read() as session:
        if not is_referred_to(session, key):
            return False
    storage.write(key, content)
    return True
