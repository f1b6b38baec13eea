"""Workers as they present themselves."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, ForeignKey, String, Text, false
from sqlalchemy.orm import Mapped, mapped_column, relationship

from server.db import Base, database_time, new_id, now
from server.models.account import Account
from server.models.competition import Competition, value_in


@dataclass(frozen=True)
class WorkerFacts:
    """What a worker says of itself. memory_mib: of one run. isolates_runs: refuses runs that share a process."""

    name: str
    device: str
    memory_mib: int
    versions: dict[str, Any]
    isolates_runs: bool = False


def host_of(worker_name: str) -> str:
    """Return the host that a worker's process runs on: its name is host-process."""
    return worker_name.rpartition("-")[0]


def libraries_fact(name: str) -> str:
    """Return under which name a worker's versions hold those of an installed set of older libraries."""
    return f"libraries {name}"


def minor_version(version: object) -> str:
    """Return major.minor: a release that only fixes bugs computes the same."""
    return ".".join(str(version).split("+", maxsplit=1)[0].split(".")[:2])


class WorkerState(StrEnum):
    ACTIVE = "active"
    COOLING = "cooling"  # after a fault of its host it leaves the work to others for a while
    QUARANTINED = "quarantined"  # after many faults in a row; it takes work again once a run of its own went well
    DRAINING = "draining"  # takes nothing new: it was asked to stop, or its host was cordoned
    STOPPED = "stopped"


class Worker(Base):
    """One process that runs shards: what it said of itself, and which splits refuse it and why."""

    __tablename__ = "workers"
    __table_args__ = (value_in("state", WorkerState),)

    name: Mapped[str] = mapped_column(String(120), primary_key=True)
    token_id: Mapped[str | None] = mapped_column(ForeignKey("worker_tokens.id", ondelete="CASCADE"), index=True)
    state: Mapped[str] = mapped_column(String(16), default=WorkerState.ACTIVE.value)
    device: Mapped[str] = mapped_column(String(8))
    memory_mib: Mapped[int]
    versions: Mapped[dict[str, Any]] = mapped_column(JSON)
    detail: Mapped[str] = mapped_column(Text, default="", server_default="")  # why it is in a state that takes nothing
    refusals: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)  # split id -> why this worker does not fit
    started_at: Mapped[datetime] = mapped_column(default=database_time())
    seen_at: Mapped[datetime] = mapped_column(default=database_time(), index=True)


class CordonedHost(Base):
    """A host whose workers take no new work, by an administrator's word."""

    __tablename__ = "cordoned_hosts"

    host: Mapped[str] = mapped_column(String(120), primary_key=True)  # of workers' names, without the process
    reason: Mapped[str] = mapped_column(Text)
    ordered_by: Mapped[str | None] = mapped_column(ForeignKey("accounts.id"))  # empty: by command
    ordered_at: Mapped[datetime] = mapped_column(default=database_time())


class WorkerToken(Base):
    """What lets an organiser's own machine run one competition's shards. It is shown once and never stored."""

    __tablename__ = "worker_tokens"

    id: Mapped[str] = mapped_column(String(16), primary_key=True, default=new_id)
    competition_id: Mapped[str] = mapped_column(ForeignKey("competitions.id", ondelete="CASCADE"), index=True)
    name: Mapped[str] = mapped_column(String(100))
    token_hash: Mapped[str] = mapped_column(String(64), unique=True)
    public_only: Mapped[bool] = mapped_column(default=False)  # no shard of the private split
    trusted: Mapped[bool] = mapped_column(default=False, server_default=false())  # an administrator vouches for it
    confirmed_runs: Mapped[int] = mapped_column(default=0, server_default="0")  # that a trusted worker found the same
    created_by: Mapped[str] = mapped_column(ForeignKey("accounts.id"))
    created_at: Mapped[datetime] = mapped_column(default=now)
    expires_at: Mapped[datetime]
    last_seen_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    quarantined_at: Mapped[datetime | None]
    quarantine_reason: Mapped[str] = mapped_column(Text, default="", server_default="")

    competition: Mapped[Competition] = relationship(lazy="raise")
    creator: Mapped[Account] = relationship(lazy="raise")
