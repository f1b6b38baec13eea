"""What is not kept for ever: logs of runs, ended log-ins, tokens, links and invitations, messages that were sent or
given up, workers that went away, datasets that nobody used."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, or_
from sqlalchemy.orm import InstrumentedAttribute, Session

from server.conditional_update import changed_rows
from server.config import Settings
from server.datasets import service as datasets
from server.models.account import ApiToken, PasswordReset, WebSession
from server.models.evaluation import RunLog
from server.models.invitation import Invitation
from server.models.notification import Delivery, DeliveryState, QueuedEmail
from server.workers import repository as workers
from server.workers.service import REMOVED_AFTER_S

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
    workers.forget_silent(session, after_s=REMOVED_AFTER_S)
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
