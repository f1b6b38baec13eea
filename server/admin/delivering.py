"""Sends what webhooks are to be told. A worker's beat calls `deliver`; an address that fails is tried again, later
and later, six times over about a day. No transaction is open while an address answers.

Organisers choose the addresses, so they are not trusted: only public ones are spoken to, the one that was checked is
the one that is connected to, redirects are not followed, and little of the answer is read.
"""

import ipaddress
import json
import socket
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlsplit, urlunsplit

import httpx
import structlog

from server.admin import webhooks
from server.admin import webhooks_repository as repository
from server.config import Settings
from server.db import Database, now
from server.models.notification import Delivery, DeliveryState, Webhook

log = structlog.get_logger()

RETRY_AFTER = tuple(timedelta(minutes=minutes) for minutes in (1, 5, 30, 120, 360, 720))
TIMEOUT_S = 5.0
AT_ONCE = 5  # the beat that sends waits for them


class Refused(Exception):
    """The address is not one that the server speaks to."""


@dataclass(frozen=True)
class Message:
    """One attempt at a delivery, as read from the database."""

    delivery_id: str
    attempt: int
    url: str
    body: bytes
    secret: str


def deliver(database: Database, settings: Settings, *, at: datetime, allow_private: bool = False) -> int:
    """Send what is due. Return how many messages arrived. Safe to run twice at once.

    allow_private: also speak to addresses of private networks, for tests and closed installations.
    """
    return sum(_send(database, message, allow_private=allow_private) for message in _take(database, settings, at=at))


def _take(database: Database, settings: Settings, *, at: datetime) -> list[Message]:
    messages = []
    with database.write() as session:
        for delivery in repository.due(session, at, limit=AT_ONCE):
            hook = repository.by_id(session, delivery.webhook_id or "")
            if hook is None or hook.disabled_at is not None:
                repository.end(session, delivery.id, state=DeliveryState.FAILED, error="the webhook was removed")
                continue
            wait = RETRY_AFTER[min(delivery.attempts, len(RETRY_AFTER) - 1)]
            if repository.take(session, delivery, until=at + wait):
                messages.append(_message(settings, delivery, hook))
    return messages


def _message(settings: Settings, delivery: Delivery, hook: Webhook) -> Message:
    body = json.dumps({"id": delivery.id, **delivery.payload}, sort_keys=True).encode()
    return Message(delivery.id, delivery.attempts + 1, hook.url, body, webhooks.secret_of(settings, hook.id))


def _send(database: Database, message: Message, *, allow_private: bool) -> bool:
    try:
        _post(message, allow_private=allow_private)
    except (httpx.HTTPError, OSError, Refused, ValueError) as error:
        _note_failure(database, message, f"{type(error).__name__}: {error}"[:500])
        return False
    with database.write() as session:
        repository.end(session, message.delivery_id, state=DeliveryState.SENT, error="")
    return True


def _note_failure(database: Database, message: Message, error: str) -> None:
    log.warning("webhook not delivered", delivery=message.delivery_id, attempt=message.attempt, error=error)
    with database.write() as session:
        if message.attempt >= len(RETRY_AFTER):
            repository.end(session, message.delivery_id, state=DeliveryState.FAILED, error=error)
        else:
            repository.note_error(session, message.delivery_id, error)


def _post(message: Message, *, allow_private: bool) -> None:
    parts = urlsplit(message.url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    address = _public_address(host, port, allow_private=allow_private)
    shown = f"[{address}]" if ":" in address else address
    timestamp = int(now().timestamp())
    headers = {
        "Host": parts.netloc,
        "Content-Type": "application/json",
        "User-Agent": "lethe-webhook/1",
        "Lethe-Signature": webhooks.signature(message.secret, timestamp=timestamp, body=message.body),
    }
    url = urlunsplit((parts.scheme, f"{shown}:{port}", parts.path or "/", parts.query, ""))
    with (
        httpx.Client(timeout=TIMEOUT_S, follow_redirects=False, trust_env=False) as client,
        client.stream("POST", url, content=message.body, headers=headers, extensions={"sni_hostname": host}) as answer,
    ):
        if not answer.is_success:
            raise Refused(f"{host} answered {answer.status_code}")


def _public_address(host: str, port: int, *, allow_private: bool) -> str:
    """Return the address to connect to. Raises Refused unless every address of the host is public."""
    found = {str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    private = [address for address in found if not ipaddress.ip_address(address).is_global]
    if private and not allow_private:
        raise Refused(f"{host} is not a public address")
    return min(found)
