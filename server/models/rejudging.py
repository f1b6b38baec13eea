"""What organisers do to a running competition: announcements, and scoring a set of submissions again."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from lethe.competition.visibility import Visibility
from server.db import Base, new_id, now
from server.models.competition import value_in


class Announcement(Base):
    __tablename__ = "announcements"

    id: Mapped[str] = mapped_column(String(16), primary_key=True, default=new_id)
    competition_id: Mapped[str] = mapped_column(ForeignKey("competitions.id", ondelete="CASCADE"), index=True)
    author_id: Mapped[str] = mapped_column(ForeignKey("accounts.id"))
    title: Mapped[str] = mapped_column(String(200))
    text: Mapped[str] = mapped_column(Text)  # Markdown
    created_at: Mapped[datetime] = mapped_column(default=now)


class RejudgingState(StrEnum):
    RUNNING = "running"
    APPLIED = "applied"
    DISCARDED = "discarded"


class Rejudging(Base):
    """A set of evaluations made again beside the live ones, to be applied or discarded as one."""

    __tablename__ = "rejudgings"
    __table_args__ = (value_in("state", RejudgingState), value_in("visibility", Visibility))

    id: Mapped[str] = mapped_column(String(16), primary_key=True, default=new_id)
    competition_id: Mapped[str] = mapped_column(ForeignKey("competitions.id", ondelete="CASCADE"), index=True)
    visibility: Mapped[str] = mapped_column(String(8))
    state: Mapped[str] = mapped_column(String(16), default=RejudgingState.RUNNING.value)
    reason: Mapped[str] = mapped_column(Text)
    changed: Mapped[str] = mapped_column(String(40))  # scorer, limits, split, host
    chosen: Mapped[dict[str, Any]] = mapped_column(JSON)  # how the submissions were chosen
    # [scoring] that it tries; none: the competition's. The column has the section's former name.
    scoring: Mapped[dict[str, Any] | None] = mapped_column("metric", JSON)
    oracle: Mapped[dict[str, Any] | None] = mapped_column(JSON)  # the oracle's score by that scoring
    created_by: Mapped[str] = mapped_column(ForeignKey("accounts.id"))
    created_at: Mapped[datetime] = mapped_column(default=now)
    ended_at: Mapped[datetime | None]
