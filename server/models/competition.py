"""Competitions, their splits with the shards of their models, their teams, benchmarks, uploaded datasets."""

from datetime import date, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, BigInteger, CheckConstraint, ForeignKey, Index, String, Text, UniqueConstraint, text, true
from sqlalchemy.orm import Mapped, mapped_column, relationship

from lethe.competition.run_limits import RetrainingCost
from lethe.competition.visibility import Visibility
from server.db import Base, database_time, new_id, now
from server.models.account import Account


class Dataset(Base):
    """An archive in storage, under its SHA-256. Competition files name it; its content never changes.

    A row is written before its file, so that it counts meanwhile, and `stored_at` once the file is there. A deleted one
    counts until `lethe gc --delete` has removed the file.
    """

    __tablename__ = "datasets"

    id: Mapped[str] = mapped_column(String(16), primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(String(64), unique=True)
    account_id: Mapped[str] = mapped_column(ForeignKey("accounts.id"), index=True)
    sha256: Mapped[str] = mapped_column(String(64), index=True)
    archive_bytes: Mapped[int] = mapped_column(BigInteger)
    unpacked_bytes: Mapped[int] = mapped_column(BigInteger)
    files: Mapped[int]
    created_at: Mapped[datetime] = mapped_column(default=now)
    stored_at: Mapped[datetime | None]
    deleted_at: Mapped[datetime | None]

    account: Mapped[Account] = relationship(lazy="raise")


class Benchmark(Base):
    """What is asked for; cells' competitions and their submissions hold the results, which benchmarks share."""

    __tablename__ = "benchmarks"

    id: Mapped[str] = mapped_column(String(16), primary_key=True, default=new_id)
    slug: Mapped[str] = mapped_column(String(64), unique=True)
    text: Mapped[str] = mapped_column(Text)  # the benchmark file as it was given
    config: Mapped[dict[str, Any]] = mapped_column(JSON)  # a BenchmarkFile, dumped
    cells: Mapped[list[dict[str, Any]]] = mapped_column(JSON)  # name, key, competition_id
    methods: Mapped[list[dict[str, Any]]] = mapped_column(JSON)  # MethodRecord, dumped
    created_by: Mapped[str] = mapped_column(ForeignKey("accounts.id"))
    created_at: Mapped[datetime] = mapped_column(default=now)
    submits_until: Mapped[datetime | None]  # no further method is submitted then
    complete_at: Mapped[datetime | None]  # when nothing was left to submit


class Leased:
    """A row that one attempt of one worker holds at a time (server/jobs/leases.py)."""

    id: Mapped[Any]
    state: Mapped[str] = mapped_column(String(16))
    attempt: Mapped[int] = mapped_column(default=0)
    failed_attempts: Mapped[int] = mapped_column(default=0)  # that lost their worker or met a fault of their host
    lease_expires_at: Mapped[datetime | None]


class CompetitionState(StrEnum):
    DRAFT = "draft"
    PREPARING = "preparing"
    READY = "ready"
    OPEN = "open"
    CLOSED = "closed"  # re-scoring on the private split
    PROVISIONAL = "provisional"  # private board computed, seen by organisers only
    FINAL = "final"  # revealed
    ARCHIVED = "archived"


class SplitState(StrEnum):
    PENDING = "pending"
    PREPARING = "preparing"
    READY = "ready"
    FAILED = "failed"


def value_in(column: str, values: type[StrEnum]) -> CheckConstraint:
    """Return the constraint that `column` holds one of the enum's values."""
    allowed = ", ".join(f"'{value.value}'" for value in values)
    return CheckConstraint(f"{column} IN ({allowed})", name=column)


class Competition(Base):
    __tablename__ = "competitions"
    __table_args__ = (value_in("state", CompetitionState), CheckConstraint("opens_at < closes_at", name="dates"))

    id: Mapped[str] = mapped_column(String(16), primary_key=True, default=new_id)
    slug: Mapped[str] = mapped_column(String(64), unique=True)
    title: Mapped[str] = mapped_column(String(200))
    summary: Mapped[str] = mapped_column(String(500), default="")
    state: Mapped[str] = mapped_column(String(16), default=CompetitionState.DRAFT.value)
    opens_at: Mapped[datetime]
    closes_at: Mapped[datetime] = mapped_column(index=True)
    config: Mapped[dict[str, Any]] = mapped_column(JSON)  # a CompetitionFile, dumped
    source: Mapped[str] = mapped_column(Text)  # the TOML as it was given
    created_at: Mapped[datetime] = mapped_column(default=now)
    created_by: Mapped[str] = mapped_column(ForeignKey("accounts.id"))
    closed_at: Mapped[datetime | None]
    frozen_at: Mapped[datetime | None]  # finals are fixed and their private evaluations queued
    revealed_at: Mapped[datetime | None]
    # A cell of benchmarks, by the key of its content: on no list, and it never opens. Empty: a competition.
    cell_key: Mapped[str | None] = mapped_column(String(20), index=True, unique=True)

    # Of a task: the competition that it is one of, its name there, its place among the others. It is on no list; its
    # state, dates, teams and organisers are the competition's.
    parent_id: Mapped[str | None] = mapped_column(ForeignKey("competitions.id"), index=True)
    task_name: Mapped[str | None] = mapped_column(String(40))
    task_place: Mapped[int] = mapped_column(default=0, server_default="0")

    # Of an imported one: the key that its archive named. Its scores are verified if the importer trusted that key.
    archive_key: Mapped[str | None] = mapped_column(String(64))
    scores_verified: Mapped[bool] = mapped_column(default=True, server_default=true())

    splits: Mapped[list["Split"]] = relationship(lazy="raise", back_populates="competition")

    @property
    def root_id(self) -> str:
        """The competition that has the teams and organisers: of a task the one that it belongs to."""
        return self.parent_id or self.id


class CompetitionOrganiser(Base):
    __tablename__ = "competition_organisers"

    competition_id: Mapped[str] = mapped_column(ForeignKey("competitions.id", ondelete="CASCADE"), primary_key=True)
    account_id: Mapped[str] = mapped_column(ForeignKey("accounts.id", ondelete="CASCADE"), primary_key=True)


class Split(Leased, Base):
    """One prepared cut of the data: forget set, original and N retrained models. One version is current."""

    __tablename__ = "splits"
    __table_args__ = (
        UniqueConstraint("competition_id", "visibility", "version"),
        Index(
            "uq_splits_current",
            "competition_id",
            "visibility",
            unique=True,
            postgresql_where=text("is_current"),
            sqlite_where=text("is_current"),
        ),
        value_in("visibility", Visibility),
        value_in("state", SplitState),
    )

    id: Mapped[str] = mapped_column(String(16), primary_key=True, default=new_id)
    competition_id: Mapped[str] = mapped_column(ForeignKey("competitions.id", ondelete="CASCADE"))
    visibility: Mapped[str] = mapped_column(String(8))
    version: Mapped[int] = mapped_column(default=1, server_default="1")
    is_current: Mapped[bool] = mapped_column(default=True, server_default=true())
    dataset: Mapped[dict[str, Any] | None] = mapped_column(JSON)  # [dataset], where it is not the competition's
    state: Mapped[str] = mapped_column(String(16), default=SplitState.PENDING.value)
    stage: Mapped[str] = mapped_column(String(80), default="")  # what the preparation is doing, as text
    progress: Mapped[float] = mapped_column(default=0.0)  # share done of that stage, 0..1
    failed_attempts: Mapped[int] = mapped_column(default=0, server_default="0")
    error: Mapped[str] = mapped_column(Text, default="")
    manifest_sha256: Mapped[str | None] = mapped_column(String(64))
    device: Mapped[str | None] = mapped_column(String(8))  # cpu or cuda: what prepared it, and so must evaluate on it
    versions: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)  # of torch and python, of the preparation
    n_forget: Mapped[int | None]
    retraining_time_s: Mapped[float | None]
    retraining_cpu_s: Mapped[float | None]  # of the fastest that is known, without starting; None on a GPU
    start_cpu_s: Mapped[float | None]  # of a run that does nothing
    oracle: Mapped[dict[str, Any] | None] = mapped_column(JSON)  # the exact-retraining oracle's score, as data
    prepared_at: Mapped[datetime | None]

    competition: Mapped[Competition] = relationship(lazy="raise", back_populates="splits")

    @property
    def retraining(self) -> RetrainingCost:
        """What the limit of a run on this split is a share of."""
        return RetrainingCost(self.retraining_time_s or 0.0, self.retraining_cpu_s, self.start_cpu_s or 0.0)


class Team(Base):
    __tablename__ = "teams"
    __table_args__ = (UniqueConstraint("competition_id", "name_key"),)

    id: Mapped[str] = mapped_column(String(16), primary_key=True, default=new_id)
    competition_id: Mapped[str] = mapped_column(ForeignKey("competitions.id", ondelete="CASCADE"))
    name: Mapped[str] = mapped_column(String(60))
    name_key: Mapped[str] = mapped_column(String(60))
    leader_id: Mapped[str] = mapped_column(ForeignKey("accounts.id"))
    is_baseline: Mapped[bool] = mapped_column(
        default=False
    )  # the organiser's own entries, shown but not ranked for prizes
    created_at: Mapped[datetime] = mapped_column(default=now)
    disqualified_at: Mapped[datetime | None]
    served_at: Mapped[datetime | None]  # by servers of older versions: rounds replace it
    extended_until: Mapped[datetime | None]  # the organisers let this team submit longer than others
    merged_into_id: Mapped[str | None] = mapped_column(ForeignKey("teams.id"))  # it is empty then

    leader: Mapped[Account] = relationship(lazy="raise")


class Membership(Base):
    """A person is in one team of a competition: the unique pair says so."""

    __tablename__ = "memberships"
    __table_args__ = (UniqueConstraint("competition_id", "account_id"),)

    team_id: Mapped[str] = mapped_column(ForeignKey("teams.id", ondelete="CASCADE"), primary_key=True)
    account_id: Mapped[str] = mapped_column(ForeignKey("accounts.id", ondelete="CASCADE"), primary_key=True)
    competition_id: Mapped[str] = mapped_column(ForeignKey("competitions.id", ondelete="CASCADE"))
    joined_at: Mapped[datetime] = mapped_column(default=now)

    team: Mapped[Team] = relationship(lazy="raise")
    account: Mapped[Account] = relationship(lazy="raise")


class ModelShardState(StrEnum):
    QUEUED = "queued"
    LEASED = "leased"
    DONE = "done"
    FAILED = "failed"  # a model did not learn, or too many workers were lost: the complete preparation has ended
    CANCELLED = "cancelled"  # another shard failed


class PreparationUse(Base):
    """Processor time that preparations of one account's competitions took on one day (UTC)."""

    __tablename__ = "preparation_use"

    account_id: Mapped[str] = mapped_column(ForeignKey("accounts.id", ondelete="CASCADE"), primary_key=True)
    day: Mapped[date] = mapped_column(primary_key=True)
    cpu_time_s: Mapped[float] = mapped_column(default=0.0)


class ModelShard(Leased, Base):
    """Models first_model .. first_model + n_models - 1 of one kind: retrained, oracle or originals."""

    __tablename__ = "model_shards"
    __table_args__ = (
        UniqueConstraint("split_id", "kind", "position"),
        value_in("state", ModelShardState),
        CheckConstraint("(state = 'leased') = (lease_expires_at IS NOT NULL)", name="leased_has_lease"),
    )

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    split_id: Mapped[str] = mapped_column(ForeignKey("splits.id", ondelete="CASCADE"))
    kind: Mapped[str] = mapped_column(String(10))
    position: Mapped[int]  # the number of the file that holds the models
    first_model: Mapped[int]
    n_models: Mapped[int]
    state: Mapped[str] = mapped_column(String(16), default=ModelShardState.QUEUED.value)
    worker: Mapped[str | None] = mapped_column(String(120))
    models_done: Mapped[float] = mapped_column(default=0.0)  # a model half trained counts as a half
    queued_at: Mapped[datetime] = mapped_column(default=database_time())
    claimed_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    error: Mapped[str] = mapped_column(Text, default="")  # of the last attempt that failed, for organisers
