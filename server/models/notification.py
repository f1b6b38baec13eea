"""What people and programs receive: outboxes, so no message is lost or sent for a rolled-back action."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, CheckConstraint, ForeignKey, Index, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from server.db import Base, new_id, now
from server.models.competition import value_in


class Webhook(Base):
    """An address that receives a competition's events. Its secret is derived from the instance's key."""

    __tablename__ = "webhooks"

    id: Mapped[str] = mapped_column(String(16), primary_key=True, default=new_id)
    competition_id: Mapped[str] = mapped_column(ForeignKey("competitions.id", ondelete="CASCADE"), index=True)
    url: Mapped[str] = mapped_column(String(500))
    events: Mapped[list[Any]] = mapped_column(JSON)
    created_by: Mapped[str] = mapped_column(ForeignKey("accounts.id"))
    created_at: Mapped[datetime] = mapped_column(default=now)
    disabled_at: Mapped[datetime | None]


class DeliveryState(StrEnum):
    WAITING = "waiting"
    SENT = "sent"
    FAILED = "failed"  # given up


class _Outgoing:
    """How far the sending of one message is."""

    id: Mapped[str] = mapped_column(String(16), primary_key=True, default=new_id)
    state: Mapped[str] = mapped_column(String(8), default=DeliveryState.WAITING.value)
    attempts: Mapped[int] = mapped_column(default=0)
    next_attempt_at: Mapped[datetime] = mapped_column(default=now)
    error: Mapped[str] = mapped_column(Text, default="")
    created_at: Mapped[datetime] = mapped_column(default=now)


def _outbox(table: str) -> tuple[CheckConstraint, Index]:
    """Return what every table of outgoing messages has: a few states, and an index over what waits."""
    waiting = text("state = 'waiting'")
    due = Index(f"ix_{table}_due", "next_attempt_at", postgresql_where=waiting, sqlite_where=waiting)
    return value_in("state", DeliveryState), due


class Delivery(_Outgoing, Base):
    """One message to one webhook."""

    __tablename__ = "deliveries"
    __table_args__ = _outbox("deliveries")

    competition_id: Mapped[str | None] = mapped_column(ForeignKey("competitions.id", ondelete="CASCADE"))
    webhook_id: Mapped[str | None] = mapped_column(ForeignKey("webhooks.id", ondelete="CASCADE"))
    event: Mapped[str] = mapped_column(String(40))
    payload: Mapped[dict[str, Any]] = mapped_column(JSON)


class QueuedEmail(_Outgoing, Base):
    """One e-mail to one address. What it said is forgotten once it is sent or given up: it may hold a secret link."""

    __tablename__ = "mails"
    __table_args__ = _outbox("mails")

    address: Mapped[str] = mapped_column(String(254))
    subject: Mapped[str] = mapped_column(String(300))
    body: Mapped[str] = mapped_column(Text)
