"""Workers as they present themselves."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, String
from sqlalchemy.orm import Mapped, mapped_column

from server.db import Base, moment
from server.models.competition import one_of


class WorkerState(StrEnum):
    ACTIVE = "active"
    DRAINING = "draining"  # finishes what it holds, takes nothing new
    STOPPED = "stopped"


class Worker(Base):
    """One process that runs shards: what it said of itself, and which splits refuse it and why."""

    __tablename__ = "workers"
    __table_args__ = (one_of("state", WorkerState),)

    name: Mapped[str] = mapped_column(String(120), primary_key=True)
    state: Mapped[str] = mapped_column(String(16), default=WorkerState.ACTIVE.value)
    device: Mapped[str] = mapped_column(String(8))
    memory_mib: Mapped[int]
    versions: Mapped[dict[str, Any]] = mapped_column(JSON)
    refusals: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)  # split id -> why this worker does not fit
    started_at: Mapped[datetime] = mapped_column(default=moment())
    seen_at: Mapped[datetime] = mapped_column(default=moment(), index=True)
