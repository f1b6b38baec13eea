"""Metrics beside the score: one row for each metric of an evaluation, asked for first and computed later."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, ForeignKey, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from server.db import Base, now


class MetricResult(Base):
    """One metric of one evaluation. `computed_at` is empty while it waits to be computed.

    value is empty where the metric is not defined for this input or could not be computed; `not_computed` says why.
    """

    __tablename__ = "metric_results"
    __table_args__ = (UniqueConstraint("evaluation_id", "metric_id", "parameters_sha256"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    evaluation_id: Mapped[str] = mapped_column(ForeignKey("evaluations.id", ondelete="CASCADE"))
    metric_id: Mapped[str] = mapped_column(String(64))
    parameters: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    parameters_sha256: Mapped[str] = mapped_column(String(64))
    metric_version: Mapped[int | None]
    value: Mapped[float | None]
    interval_low: Mapped[float | None]
    interval_high: Mapped[float | None]
    standard_deviation: Mapped[float | None]
    oracle: Mapped[float | None]
    original: Mapped[float | None]
    table: Mapped[dict[str, Any]] = mapped_column("details", JSON, default=dict)
    notes: Mapped[list[str]] = mapped_column(JSON, default=list)
    not_computed: Mapped[str] = mapped_column(Text, default="")
    attempts: Mapped[int] = mapped_column(default=0, server_default="0")  # begun since it was asked for
    requested_at: Mapped[datetime] = mapped_column(default=now)  # or, while it is being computed, last heard of
    computed_at: Mapped[datetime | None] = mapped_column(index=True)
