"""How far a benchmark is, and how long the rest takes, from the times of what is done."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from lethe.benchmark.benchmark_file import BenchmarkFile
from lethe.submission.traceback_text import place_beside
from server.benchmarks.units import BenchmarkCell, MethodUnit
from server.models.competition import SplitState


@dataclass(frozen=True)
class CellProgress:
    """How far a cell is."""

    name: str
    split: Annotated[str, Field(description="pending, preparing, ready, failed", examples=["ready"])]
    error: Annotated[str, Field(description="why it cannot be prepared")]
    n_done: int
    n_failed: int
    n_runs: int
    wanted_runs: int


@dataclass(frozen=True)
class BenchmarkProgress:
    """left: pairs of method and cell without a result. left_s: of one worker, None while nothing was measured."""

    cells: tuple[CellProgress, ...]
    failures: tuple[str, ...]
    left: int
    left_s: float | None


def benchmark_progress(file: BenchmarkFile, cells: Sequence[BenchmarkCell]) -> BenchmarkProgress:
    """Return the counts of every cell, every failure with its reason, and what is left."""
    counted = tuple(_cell_progress(file, cell) for cell in cells)
    left = sum(len(cell.units) for cell in cells) - sum(cell.n_done + cell.n_failed for cell in counted)
    times = [seconds for cell in cells for unit in cell.units if (seconds := _seconds(unit)) is not None]
    mean_s = sum(times) / len(times) if times else None
    failures = tuple(line for cell in cells for line in _failures(cell))
    return BenchmarkProgress(counted, failures, left, None if mean_s is None else left * mean_s)


def failure_reason(unit: MethodUnit) -> str:
    """Return why a unit failed or was cancelled, with all that its organiser may know; nothing if it did not."""
    if not unit.has_failed or unit.submission is None:
        return ""
    submission = unit.submission
    error = (unit.evaluation.error if unit.evaluation else None) or submission.error or {}
    message = str(error.get("message", ""))
    where = place_beside(message, file=error.get("file"), line=error.get("line"))
    return f"{submission.error_class or submission.stage}{where}: {message}".rstrip(": ")


def cell_failure(cell: BenchmarkCell) -> str:
    """Return why a cell cannot be prepared, or nothing."""
    return cell.split.error if cell.split.state == SplitState.FAILED else ""


def _cell_progress(file: BenchmarkFile, cell: BenchmarkCell) -> CellProgress:
    done = [unit for unit in cell.units if unit.is_done(file.metrics)]
    return CellProgress(
        name=cell.name,
        split=cell.split.state,
        error=cell_failure(cell),
        n_done=len(done),
        n_failed=sum(unit.has_failed for unit in cell.units),
        n_runs=sum(unit.evaluation.n_runs for unit in cell.units if unit.evaluation and unit.is_scored),
        wanted_runs=file.n_models * len(cell.units),
    )


def _seconds(unit: MethodUnit) -> float | None:
    found = unit.evaluation
    if found is None or not unit.is_scored or found.started_at is None or found.finished_at is None:
        return None
    return (found.finished_at - found.started_at).total_seconds()


def _failures(cell: BenchmarkCell) -> list[str]:
    found = [f"{cell.name}: cannot be prepared: {reason}"] if (reason := cell_failure(cell)) else []
    for unit in cell.units:
        if reason := failure_reason(unit):
            found.append(f"{cell.name}, {unit.method.name}: F: {reason}")
    return found
