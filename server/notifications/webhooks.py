"""Webhooks: an organiser's address receives events, signed, with retries.

What is to be told is stored with the act itself (an outbox), so that nothing is told that was undone, and nothing is
forgotten. No figure that participants may not see is ever in it.
"""

import hashlib
import hmac
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from sqlalchemy.orm import Session

from lethe.errors import InvalidInput, NotFound, Violation
from server import audit
from server.config import Settings
from server.db import now
from server.errors import Conflict
from server.models.account import Account
from server.models.competition import Competition
from server.models.notification import Delivery, Webhook
from server.notifications import notification_repository

UNICAST = ipaddress.ip_network("2000::/3")  # all that is given to hosts of the internet
TRANSLATED = ipaddress.ip_network("64:ff9b::/96")  # the addresses of IPv4 where a network has none of its own
LOCAL_NAMES = ("localhost", "local", "localdomain", "internal", "intranet", "lan", "home", "corp")
EVENTS = (
    "submission.scored",
    "submission.failed",
    "submission.unconfirmed",
    "final.failed",
    "competition.closed",
    "competition.revealed",
    "competition.announced",
    "worker_token.quarantined",
    "question.asked",
    "question.answered",
)
MAX_WEBHOOKS = 10
MAX_DELIVERIES = 100


def names_private_host(host: str) -> bool:
    """Return whether a host is private by its name alone: an address, or a name that only a local network knows."""
    try:
        return not is_public(host)
    except ValueError:
        name = host.rstrip(".").lower()
        return "." not in name or name.rpartition(".")[2] in LOCAL_NAMES


def is_public(address: str) -> bool:
    """Return whether an address is one host's of the public internet, also where it stands for one of IPv4.

    Python calls whatever is not reserved for something else global: groups of hosts, and networks given up long ago.
    """
    parsed = ipaddress.ip_address(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed in TRANSLATED:
            return is_public(str(ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)))
        if parsed not in UNICAST or parsed.sixtofour or parsed.teredo:
            return False
    return parsed.is_global and not parsed.is_multicast


@dataclass(frozen=True)
class NewWebhook:
    """A webhook at the only time when its secret is shown."""

    row: Webhook
    secret: str


def create(
    session: Session, settings: Settings, competition: Competition, *, url: str, events: Sequence[str], actor: Account
) -> NewWebhook:
    """Send these events to `url` from now on. Raises InvalidInput or Conflict."""
    _check(url, events, allow_private=settings.webhooks_to_private)
    notification_repository.lock_competition(session, competition.id)
    if len(notification_repository.webhooks(session, competition.id)) >= MAX_WEBHOOKS:
        raise Conflict(f"A competition has at most {MAX_WEBHOOKS} webhooks; remove one first")
    row = Webhook(competition_id=competition.id, url=url, events=sorted(set(events)), created_by=actor.id)
    session.add(row)
    session.flush()
    data = {"host": urlsplit(url).hostname, "events": row.events}
    audit.record(session, actor, "webhook.created", competition=competition, subject=row.id, data=data)
    return NewWebhook(row, webhook_secret(settings, row.id))


def of_competition(session: Session, competition: Competition) -> Sequence[Webhook]:
    return notification_repository.webhooks(session, competition.id)


def remove(session: Session, competition: Competition, webhook_id: str, *, actor: Account) -> None:
    """Stop sending to this address. Raises NotFound."""
    row = get(session, competition, webhook_id)
    row.disabled_at = now()
    audit.record(session, actor, "webhook.removed", competition=competition, subject=row.id)


def get(session: Session, competition: Competition, webhook_id: str) -> Webhook:
    """Return a webhook of the competition. Raises NotFound."""
    row = session.get(Webhook, webhook_id)
    if row is None or row.competition_id != competition.id or row.disabled_at is not None:
        raise NotFound(f"{competition.slug} has no webhook {webhook_id!r}")
    return row


def deliveries(session: Session, webhook: Webhook) -> Sequence[Delivery]:
    """Return what an address received last, and how that went, the newest first."""
    return notification_repository.deliveries(session, webhook.id, limit=MAX_DELIVERIES)


def notify(session: Session, competition_id: str, event: str, data: dict[str, Any]) -> int:
    """Store what is to be sent, in the transaction of the act itself. Return to how many addresses."""
    interested = [hook for hook in notification_repository.webhooks(session, competition_id) if event in hook.events]
    for hook in interested:
        payload = {"event": event, "at": now().isoformat(), "data": data}
        session.add(Delivery(competition_id=competition_id, webhook_id=hook.id, event=event, payload=payload))
    return len(interested)


def webhook_secret(settings: Settings, webhook_id: str) -> str:
    """Return the secret that a webhook's messages are signed with. It is derived, and stored nowhere."""
    info = f"lethe webhook {webhook_id}".encode()
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(settings.signing_key()).hex()


def signature(secret: str, *, timestamp: int, body: bytes) -> str:
    """Return the value of the header Lethe-Signature: HMAC-SHA256 over `timestamp.body`."""
    digest = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={digest}"


def _is_address(url: str) -> bool:
    """Return whether messages can be sent to this address: a malformed host or port shows only when it is asked for."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 (it raises)
        httpx.URL(url)
        (parts.hostname or "").encode("idna")
    except (ValueError, httpx.InvalidURL):
        return False
    written = url.isprintable() and " " not in url and len(url) <= 500
    return written and parts.scheme in ("https", "http") and bool(parts.hostname) and not parts.username


def _check(url: str, events: Sequence[str], *, allow_private: bool) -> None:
    if not _is_address(url):
        allowed = "needs the form https://host/path, without a user name"
        raise InvalidInput(f"The address {allowed}", violations=(Violation("url", allowed, url[:120]),))
    if not allow_private and names_private_host(urlsplit(url).hostname or ""):
        allowed = "must be one of the public internet: this server sends nothing into its own network"
        raise InvalidInput(f"The address {allowed}", violations=(Violation("url", allowed, url[:120]),))
    unknown = sorted(set(events) - set(EVENTS))
    if unknown or not events:
        allowed = f"are some of {', '.join(EVENTS)}"
        raise InvalidInput(f"The events {allowed}", violations=(Violation("events", allowed, ", ".join(unknown)),))
