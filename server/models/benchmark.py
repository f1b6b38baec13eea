"""A benchmark: methods x cells, evaluated as submissions to hidden competitions."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from server.db import Base, new_id, now


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
