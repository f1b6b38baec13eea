"""Benchmarks as JSON."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from lethe.benchmark.benchmark_file import BenchmarkFile, Scalar
from server.api.schema import Out
from server.benchmarks.progress import BenchmarkProgress, CellProgress
from server.models.benchmark import Benchmark


class CellIn(BaseModel):
    """A cell: its name in the tables, and its competition file as `lethe benchmark validate` makes it."""

    name: str = Field(min_length=1, max_length=200)
    competition: dict[str, Any]


class MethodIn(BaseModel):
    """A method: its row's name and its file. id, constants: of the catalogue's method that it is."""

    name: str = Field(min_length=1, max_length=200)
    source: str = Field(min_length=1, max_length=1 << 18)
    id: str | None = None
    constants: dict[str, Scalar] = {}


class BenchmarkIn(BaseModel):
    """What is to be computed. max_hours: nothing is submitted after that; 0 stops it now."""

    file: BenchmarkFile
    text: str = Field(description="the file as it was written, for the report")
    cells: list[CellIn] = Field(min_length=1, max_length=200)
    methods: list[MethodIn] = Field(min_length=1, max_length=200)
    max_hours: float | None = Field(default=None, ge=0, le=24 * 366)
    retry_failed: bool = Field(default=False, description="also run again what failed")


class BenchmarkOut(Out):
    """A benchmark in a list."""

    slug: str
    cells: int
    methods: int
    created_at: datetime
    submits_until: datetime | None
    complete_at: datetime | None = Field(description="when nothing was left to submit")

    @classmethod
    def of(cls, benchmark: Benchmark) -> "BenchmarkOut":
        return cls.read(benchmark, **_counts(benchmark))


class BenchmarkStatus(BenchmarkOut):
    """How far a benchmark is."""

    progress: list[CellProgress]
    failures: list[str]
    left: int = Field(description="pairs of method and cell without a result")
    left_s: float | None = Field(description="estimate for one worker, null while nothing was measured")
    changed: str = Field(default="", description="what is new since it was last sent")

    @classmethod
    def with_progress(
        cls, benchmark: Benchmark, progress: BenchmarkProgress, *, changed: str = ""
    ) -> "BenchmarkStatus":
        return cls.read(
            benchmark,
            **_counts(benchmark),
            progress=progress.cells,
            failures=list(progress.failures),
            left=progress.left,
            left_s=progress.left_s,
            changed=changed,
        )


def _counts(benchmark: Benchmark) -> dict[str, Any]:
    return {"cells": len(benchmark.cells), "methods": len(benchmark.methods)}
