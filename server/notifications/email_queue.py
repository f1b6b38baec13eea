"""E-mails that wait to be sent: stored with the act itself, sent by a worker, so that no request waits for a mail
server, nothing is sent that was undone, and nothing is forgotten."""

from collections.abc import Iterable

from sqlalchemy.orm import Session

from server.config import get_settings
from server.models.notification import QueuedEmail

SUBJECT_LENGTH = 300


def is_on() -> bool:
    """Return whether this instance sends mail at all."""
    return bool(get_settings().smtp_host)


def queue_mail(session: Session, *, to: str, subject: str, body: str) -> bool:
    """Store one e-mail in the session's transaction. Return False, and store nothing, where mail is off.

    subject: one line; what is longer than 300 characters is cut. body: plain text.
    """
    return queue_mails(session, (to,), subject=subject, body=body) == 1


def queue_mails(session: Session, addresses: Iterable[str], *, subject: str, body: str) -> int:
    """Store the same e-mail to each address, one mail each. Return how many."""
    if not is_on():
        return 0
    line = " ".join(subject.split())[:SUBJECT_LENGTH]
    mails = [QueuedEmail(address=address, subject=line, body=body) for address in addresses]
    session.add_all(mails)
    return len(mails)


def link(path: str) -> str:
    """Return the address at which people reach a page of this instance."""
    settings = get_settings()
    return (settings.public_url or f"http://{settings.host}:{settings.port}").rstrip("/") + path
