"""What people and programs are told: an outbox, so that a message is neither lost nor sent for what was undone."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from server.db import Base, new_id, now
from server.models.competition import one_of


class Webhook(Base):
    """An address that is told of a competition's events. Its secret is derived from the instance's key."""

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


class Delivery(Base):
    """One message to one receiver."""

    __tablename__ = "deliveries"
    __table_args__ = (
        one_of("state", DeliveryState),
        Index(
            "ix_deliveries_due",
            "next_attempt_at",
            postgresql_where=text("state = 'waiting'"),
            sqlite_where=text("state = 'waiting'"),
        ),
    )

    id: Mapped[str] = mapped_column(String(16), primary_key=True, default=new_id)
    competition_id: Mapped[str | None] = mapped_column(ForeignKey("competitions.id", ondelete="CASCADE"))
    webhook_id: Mapped[str | None] = mapped_column(ForeignKey("webhooks.id", ondelete="CASCADE"))
    account_id: Mapped[str | None] = mapped_column(ForeignKey("accounts.id", ondelete="CASCADE"))  # by e-mail
    event: Mapped[str] = mapped_column(String(40))
    payload: Mapped[dict[str, Any]] = mapped_column(JSON)
    state: Mapped[str] = mapped_column(String(8), default=DeliveryState.WAITING.value)
    attempts: Mapped[int] = mapped_column(default=0)
    next_attempt_at: Mapped[datetime] = mapped_column(default=now)
    error: Mapped[str] = mapped_column(Text, default="")
    created_at: Mapped[datetime] = mapped_column(default=now)
