"""The preparation of a split, cut into shards of models that any worker may make."""

from datetime import date, datetime
from enum import StrEnum

from sqlalchemy import CheckConstraint, ForeignKey, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from server.db import Base, database_time
from server.models.competition import value_in
from server.models.leased import Leased


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
