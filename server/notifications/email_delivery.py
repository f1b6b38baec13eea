"""Sends the e-mails that wait. A mail server that fails is tried again, later and later, six times over about a day."""

from datetime import datetime

from sqlalchemy.orm import Session

from server.config import Settings
from server.db import Database
from server.models.notification import QueuedEmail
from server.notifications import outbox, repository, smtp
from server.notifications.smtp import OutgoingEmail

AT_ONCE = 100  # over one connection


def is_due(database: Database, settings: Settings, *, at: datetime) -> bool:
    """Return whether there is mail to send now."""
    if not settings.smtp_host:
        return False
    with database.read() as session:
        return repository.any_due(session, QueuedEmail, at)


def send(database: Database, settings: Settings, *, at: datetime) -> int:
    """Send what is due. Return how many mails the mail server took. Safe to run twice at once.

    No transaction is open while the mail server answers; each mail that it took is noted at once, so that a worker
    that dies sends at most one of them twice.
    """
    if not settings.smtp_host:
        return 0
    sent = 0
    emails = outbox.take(database, QueuedEmail, _read, at=at, limit=AT_ONCE)
    for email, problem in smtp.send_all(settings, emails) if emails else ():
        if problem is None:
            outbox.note_sent(database, QueuedEmail, email.mail_id)
            sent += 1
        else:
            outbox.note_failure(
                database,
                QueuedEmail,
                email.mail_id,
                attempt=email.attempt,
                error=problem.text,
                is_permanent=problem.is_permanent,
            )
    return sent


def _read(_session: Session, mail: QueuedEmail) -> OutgoingEmail:
    return OutgoingEmail(mail.id, mail.attempts + 1, mail.address, mail.subject, mail.body)
