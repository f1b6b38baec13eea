"""What was done, by whom, why: rows are only ever added. When something was done last."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from server.db import Base, database_time, now


class LastTime(Base):
    __tablename__ = "last_times"

    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    at: Mapped[datetime] = mapped_column(default=database_time())


class AuditEvent(Base):
    __tablename__ = "audit_events"
    # Read newest first, page by page, by its id: each filter that stands alone has an index in that order.
    __table_args__ = (
        Index("ix_audit_events_competition_at", "competition_id", "at"),
        Index("ix_audit_events_competition", "competition_id", "id"),
        Index("ix_audit_events_subject", "subject", "id"),
        Index("ix_audit_events_action", "action", "id"),
        Index("ix_audit_events_actor", "actor", "id"),
    )

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    at: Mapped[datetime] = mapped_column(default=now)
    actor_id: Mapped[str | None] = mapped_column(ForeignKey("accounts.id"))
    actor: Mapped[str] = mapped_column(String(60))  # the name at that time; "system" for what happens by itself
    competition_id: Mapped[str | None] = mapped_column(ForeignKey("competitions.id"))
    action: Mapped[str] = mapped_column(String(60))  # e.g. submission.received, competition.closed
    subject: Mapped[str] = mapped_column(String(80), default="")
    reason: Mapped[str] = mapped_column(Text, default="")
    data: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
