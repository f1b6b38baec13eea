"""Webhooks: an organiser's addresses that receive events, signed, and their delivery."""

import asyncio
import hashlib
import hmac
import ipaddress
import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from sqlalchemy.orm import Session

from lethe.errors import InvalidInput, NotFound, Violation
from server import audit
from server.config import Settings
from server.db import Database, now
from server.errors import Conflict
from server.jobs.leases import DELIVERIES
from server.models.account import Account
from server.models.competition import Competition
from server.models.notification import Delivery, Webhook
from server.notifications import notification_repository, outbox

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
    """Return whether an address is one host's of the public internet, more narrowly than Python's is_global."""
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


TIMEOUT_S = 10.0  # of one message from first to last, however slowly its receiver goes about it
BATCH_SIZE = 20


class Refused(Exception):
    """The address is not one that the server speaks to."""


@dataclass(frozen=True)
class Message:
    """One attempt at a delivery, as read from the database."""

    delivery_id: str
    url: str
    body: bytes
    secret: str


def deliver(database: Database, settings: Settings, *, at: datetime, allow_private: bool = False) -> int:
    """Send what is due. Return how many arrived. Safe to run twice. allow_private: also to private networks."""
    messages = outbox.take(database, DELIVERIES, partial(_read, settings), at=at, limit=BATCH_SIZE)
    errors = asyncio.run(_post_all(messages, allow_private=allow_private)) if messages else []
    for message, error in zip(messages, errors, strict=True):
        outbox.note_end(database, DELIVERIES, message.delivery_id, error=error)
    return errors.count("")


def _read(settings: Settings, session: Session, delivery: Delivery) -> Message | None:
    hook = session.get(Webhook, delivery.webhook_id or "")
    if hook is None or hook.disabled_at is not None:
        return None
    body = json.dumps({"id": delivery.id, **delivery.payload}, sort_keys=True).encode()
    return Message(delivery.id, hook.url, body, webhook_secret(settings, hook.id))


async def _post_all(messages: Sequence[Message], *, allow_private: bool) -> list[str]:
    """Return what was in the way of each message, nothing if it arrived."""
    async with httpx.AsyncClient(timeout=TIMEOUT_S, follow_redirects=False, trust_env=False) as client:
        return await asyncio.gather(*(_attempt(client, message, allow_private=allow_private) for message in messages))


async def _attempt(client: httpx.AsyncClient, message: Message, *, allow_private: bool) -> str:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await _post(client, message, allow_private=allow_private)
    except (httpx.HTTPError, httpx.InvalidURL, OSError, Refused, ValueError) as error:
        return f"{type(error).__name__}: {error}"[:500]
    return ""


async def _post(client: httpx.AsyncClient, message: Message, *, allow_private: bool) -> None:
    parts = urlsplit(message.url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    address = await _public_address(host, port, allow_private=allow_private)
    shown = f"[{address}]" if ":" in address else address
    timestamp = int(now().timestamp())
    headers = {
        "Host": parts.netloc,
        "Content-Type": "application/json",
        "User-Agent": "lethe-webhook/1",
        "Lethe-Signature": signature(message.secret, timestamp=timestamp, body=message.body),
    }
    url = urlunsplit((parts.scheme, f"{shown}:{port}", parts.path or "/", parts.query, ""))
    post = client.stream("POST", url, content=message.body, headers=headers, extensions={"sni_hostname": host})
    async with post as answer:
        if not answer.is_success:
            raise Refused(f"{host} answered {answer.status_code}")


async def _public_address(host: str, port: int, *, allow_private: bool) -> str:
    """Return the address to connect to. Raises Refused unless every address of the host is public."""
    known = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = {str(info[4][0]) for info in known}
    private = [address for address in addresses if not is_public(address)]
    if private and not allow_private:
        raise Refused(f"{host} is not a public address; LETHE_WEBHOOKS_TO_PRIVATE allows such ones")
    return min(addresses)
