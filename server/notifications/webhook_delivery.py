"""Sends what webhooks must receive. A failing address is retried at growing intervals, six times over about a
day. No transaction is open while an address answers, and none waits for another.

Organisers choose the addresses, so they are not trusted: only public ones are spoken to, the one that was checked is
the one that is connected to, redirects are not followed, little of the answer is read, and for a limited time.
"""

import asyncio
import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from urllib.parse import urlsplit, urlunsplit

import httpx
from sqlalchemy.orm import Session

from server.config import Settings
from server.db import Database, now
from server.jobs.retries import DELIVERIES
from server.models.notification import Delivery, Webhook
from server.notifications import outbox, webhooks
from server.notifications.webhooks import is_public

TIMEOUT_S = 10.0  # of one message from first to last, however slowly its receiver goes about it
AT_ONCE = 20


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
    """Send what is due. Return how many messages arrived. Safe to run twice at once.

    allow_private: also speak to addresses of private networks, for tests and closed installations.
    """
    messages = outbox.take(database, DELIVERIES, partial(_read, settings), at=at, limit=AT_ONCE)
    errors = asyncio.run(_post_all(messages, allow_private=allow_private)) if messages else []
    for message, error in zip(messages, errors, strict=True):
        outbox.note_end(database, DELIVERIES, message.delivery_id, error=error)
    return errors.count("")


def _read(settings: Settings, session: Session, delivery: Delivery) -> Message | None:
    hook = session.get(Webhook, delivery.webhook_id or "")
    if hook is None or hook.disabled_at is not None:
        return None
    body = json.dumps({"id": delivery.id, **delivery.payload}, sort_keys=True).encode()
    return Message(delivery.id, hook.url, body, webhooks.webhook_secret(settings, hook.id))


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
        "Lethe-Signature": webhooks.signature(message.secret, timestamp=timestamp, body=message.body),
    }
    url = urlunsplit((parts.scheme, f"{shown}:{port}", parts.path or "/", parts.query, ""))
    post = client.stream("POST", url, content=message.body, headers=headers, extensions={"sni_hostname": host})
    async with post as answer:
        if not answer.is_success:
            raise Refused(f"{host} answered {answer.status_code}")


async def _public_address(host: str, port: int, *, allow_private: bool) -> str:
    """Return the address to connect to. Raises Refused unless every address of the host is public."""
    known = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    found = {str(info[4][0]) for info in known}
    private = [address for address in found if not is_public(address)]
    if private and not allow_private:
        raise Refused(f"{host} is not a public address; LETHE_WEBHOOKS_TO_PRIVATE allows such ones")
    return min(found)
