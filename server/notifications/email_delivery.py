"""E-mail: its text from templates, and its delivery by SMTP."""

import smtplib
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, make_msgid
from typing import Any

from sqlalchemy.orm import Session

from server.config import Settings
from server.db import Database, now
from server.jobs.leases import EMAILS
from server.models.competition import Competition
from server.models.notification import QueuedEmail
from server.models.submission import Submission
from server.notifications import outbox
from server.notifications.outbox import page_url

TIMEOUT_S = 10.0  # of each answer of the mail server
PERMANENT = range(500, 600)
BATCH_SIZE = 100  # over one connection


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
    """Send e-mails over one connection. Yield each with what was in the way, None if it went out."""
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
    emails = outbox.take(database, EMAILS, _read, at=at, limit=BATCH_SIZE)
    for email, problem in send_all(settings, emails) if emails else ():
        error, is_permanent = (problem.text, problem.is_permanent) if problem else ("", False)
        outbox.note_end(database, EMAILS, email.mail_id, error=error, is_permanent=is_permanent)
        sent += problem is None
    return sent


def _read(_session: Session, mail: QueuedEmail) -> OutgoingEmail:
    return OutgoingEmail(mail.id, mail.address, mail.subject, mail.body)


@dataclass(frozen=True)
class EmailContent:
    """Subject and plain text of an e-mail."""

    subject: str
    body: str


def submission_email(
    competition: Competition, event: str, submission: Submission, *, tasks: Mapping[str, Mapping[str, str]]
) -> EmailContent:
    """Return the e-mail to a team when one of its submissions has ended. tasks: how it ended in each, if any."""
    what = f"Your submission {submission.filename} ({submission.id}) to {competition.title}"
    page = page_url(f"/submissions/{submission.id}")
    failed = [name for name, end in tasks.items() if end["stage"] == "failed"]
    scored = [name for name, end in tasks.items() if end["stage"] == "scored"]
    if event == "submission.scored" and failed:
        how = f"has been scored in {len(scored)} of {len(tasks)} tasks ({', '.join(scored)}); it failed in"
        subject = f"{competition.title}: a score, and {len(failed)} of {len(tasks)} tasks failed"
        return _declinable(subject, f"{what} {how} {', '.join(failed)}:\n{page}")
    if event == "submission.scored":
        return _declinable(f"{competition.title}: a score", f"{what} has been scored:\n{page}")
    free = " It does not count against your quota." if submission.refunded else ""
    return _declinable(f"{competition.title}: a failure", f"{what} has failed.{free} Details:\n{page}")


def platform_failure_email(competition: Competition, submission: Submission) -> EmailContent:
    """Return the e-mail to organisers when a submission fails by their fault or the host's."""
    page = page_url(f"/organise/{competition.slug}/submissions/{submission.id}")
    text = f"Submission {submission.id} to {competition.title} has failed, but not through its team's fault:\n{page}"
    return _declinable(f"{competition.title}: platform failure", text)


def unconfirmed_email(competition: Competition, *, submission: str, split: str) -> EmailContent:
    """Return the e-mail to organisers when a score takes no rank until they confirm it."""
    page = page_url(f"/organise/{competition.slug}/submissions/{submission}?split={split}")
    text = (
        f"The {split} score of submission {submission} to {competition.title} is unconfirmed: it takes no rank until "
        f"an organiser confirms it. Its page says why:\n{page}"
    )
    return _declinable(f"{competition.title}: a score to confirm", text)


def failed_final_email(competition: Competition, *, submission: str) -> EmailContent:
    """Return the e-mail to organisers when a final fails on the private split, and they must say what becomes of it."""
    page = page_url(f"/organise/{competition.slug}")
    text = (
        f"The final {submission} of {competition.title} has failed on the private split. The results wait until an "
        f"organiser excludes it, runs it again, or takes its team's next choice:\n{page}"
    )
    return _declinable(f"{competition.title}: a decision about a final", text)


def quarantine_email(competition: Competition, *, token_name: str) -> EmailContent:
    """Return the e-mail to organisers and administrators when a worker token is quarantined."""
    page = page_url(f"/organise/{competition.slug}/audit")
    text = (
        f"Trusted workers did not find what machines with the worker token {token_name} of {competition.title} "
        f"reported. The token is refused from now on, its results are dropped, and other workers run what it had run:"
        f"\n{page}"
    )
    return _declinable(f"{competition.title}: a worker token is quarantined", text)


def competition_email(competition: Competition, event: str, data: dict[str, Any]) -> EmailContent:
    """Return the e-mail to everybody in a competition."""
    title = competition.title
    if event == "competition.announced":
        page = page_url(f"/competitions/{competition.slug}")
        return _declinable(f"{title}: {data['title']}", f"{data['text']}\n\n{page}")
    board = page_url(f"/competitions/{competition.slug}/leaderboard")
    if event == "competition.closed":
        text = f"{title} has closed. The finals are now evaluated on the private split; their scores stay sealed until"
        return _declinable(f"{title} has closed", f"{text} they are revealed.\n{board}")
    return _declinable(f"{title}: the final leaderboard", f"The private scores of {title} are revealed:\n{board}")


def letter(competition: Competition, *, subject: str, text: str, path: str) -> EmailContent:
    """Return an e-mail about a competition that leads to one of its pages."""
    return _declinable(f"{competition.title}: {subject}", f"{text}\n\n{page_url(path)}")


def _declinable(subject: str, text: str) -> EmailContent:
    why = f"You take part in this competition, or organise it. Unsubscribe: {page_url('/account')}"
    return EmailContent(subject, f"{text}\n\n-- \n{why}\n")
