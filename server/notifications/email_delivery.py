"""Sends the e-mails that wait. A mail server that fails is tried again, later and later, six times over about a day."""

import smtplib
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, make_msgid

from sqlalchemy.orm import Session

from server.config import Settings
from server.db import Database, now
from server.jobs.retries import EMAILS
from server.models.notification import QueuedEmail
from server.notifications import outbox

TIMEOUT_S = 10.0  # of each answer of the mail server
PERMANENT = range(500, 600)
AT_ONCE = 100  # over one connection


@dataclass(frozen=True)
class OutgoingEmail:
    """One attempt at an e-mail, as read from the database."""

    mail_id: str
    address: str
    subject: str
    body: str


@dataclass(frozen=True)
class MailProblem:
    """Why an e-mail did not go out. A permanent one would only come again."""

    text: str
    is_permanent: bool


def send_all(settings: Settings, emails: Sequence[OutgoingEmail]) -> Iterator[tuple[OutgoingEmail, MailProblem | None]]:
    """Send e-mails over one connection. Yield each with what was in the way, None if it went out.

    A mail server that cannot be reached, or goes away, is the problem of every email that is left.
    """
    left = list(emails)
    try:
        with _connected(settings) as server:
            while left:
                problem = _send(server, settings, left[0])
                yield left.pop(0), problem
    except (OSError, smtplib.SMTPException) as error:
        for email in left:
            yield email, MailProblem(_error_text(error), is_permanent=False)


@contextmanager
def _connected(settings: Settings) -> Iterator[smtplib.SMTP]:
    context = ssl.create_default_context()
    place = settings.smtp_host, settings.smtp_port
    server = (
        smtplib.SMTP_SSL(*place, timeout=TIMEOUT_S, context=context)
        if settings.smtp_tls == "implicit"
        else smtplib.SMTP(*place, timeout=TIMEOUT_S)
    )
    with server:
        if settings.smtp_tls == "starttls":
            server.starttls(context=context)
        if settings.smtp_user:
            server.login(settings.smtp_user, settings.smtp_password.get_secret_value())
        yield server


def _send(server: smtplib.SMTP, settings: Settings, email: OutgoingEmail) -> MailProblem | None:
    try:
        server.send_message(_message(settings, email), from_addr=settings.mail_from, to_addrs=[email.address])
    except smtplib.SMTPRecipientsRefused as error:
        code, text = next(iter(error.recipients.values()))
        return MailProblem(f"{code} {text!r}", is_permanent=code in PERMANENT)
    except smtplib.SMTPDataError as error:
        return MailProblem(_error_text(error), is_permanent=error.smtp_code in PERMANENT)
    except (smtplib.SMTPNotSupportedError, ValueError) as error:  # an address that cannot be written
        return MailProblem(_error_text(error), is_permanent=True)
    return None


def _message(settings: Settings, email: OutgoingEmail) -> EmailMessage:
    message = EmailMessage(policy=SMTP)
    message["From"] = Address("Lethe", addr_spec=settings.mail_from)
    message["To"] = Address(addr_spec=email.address)
    message["Subject"] = email.subject
    message["Date"] = format_datetime(now())
    message["Message-ID"] = make_msgid(email.mail_id, domain=settings.mail_from.rpartition("@")[2])
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(email.body)
    return message


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]


def send(database: Database, settings: Settings, *, at: datetime) -> int:
    """Send what is due. Return how many mails the mail server took. Safe to run twice at once.

    No transaction is open while the mail server answers; each mail that it took is noted at once, so that a worker
    that dies sends at most one of them twice.
    """
    if not settings.smtp_host:
        return 0
    sent = 0
    emails = outbox.take(database, EMAILS, _read, at=at, limit=AT_ONCE)
    for email, problem in send_all(settings, emails) if emails else ():
        error, is_permanent = (problem.text, problem.is_permanent) if problem else ("", False)
        outbox.note_end(database, EMAILS, email.mail_id, error=error, is_permanent=is_permanent)
        sent += problem is None
    return sent


def _read(_session: Session, mail: QueuedEmail) -> OutgoingEmail:
    return OutgoingEmail(mail.id, mail.address, mail.subject, mail.body)
