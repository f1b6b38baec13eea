"""How far a benchmark is, and how long the rest takes, from the times of what is done."""

from dataclasses import asdict, dataclass
from typing import Any

from lethe.benchmark.metric_keys import is_complete
from lethe.benchmark.plan import CellPlan, Plan
from lethe.benchmark.store import BenchmarkFolder, Unit
from lethe.benchmark.tuned_methods import settled_methods


@dataclass(frozen=True)
class CellProgress:
    """Counts of one cell. measured_s: time of the methods that are done there; n_measured: how many they are."""

    name: str
    split: str
    n_done: int
    n_failed: int
    n_runs: int
    wanted_runs: int
    measured_s: float
    n_measured: int

    def as_text(self) -> tuple[str, ...]:
        counts = (self.n_done, self.n_failed, self.n_runs, self.wanted_runs)
        return (self.name, self.split, *(str(count) for count in counts))


@dataclass(frozen=True)
class BenchmarkProgress:
    """left_s: seconds of one process for what is left, None while nothing was measured."""

    cells: tuple[CellProgress, ...]
    failures: tuple[str, ...]
    left_units: int
    left_s: float | None

    @property
    def left_text(self) -> str:
        if self.left_units == 0:
            return "nothing"
        units = f"{self.left_units} of method x cell"
        return units if self.left_s is None else f"{units}, about {self.left_s / 60:.0f} minutes of one process"

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "cells": [asdict(cell) for cell in self.cells],
            "failures": list(self.failures),
            "left": self.left_units,
            "left_s": self.left_s,
        }


def benchmark_progress(plan: Plan, folder: BenchmarkFolder) -> BenchmarkProgress:
    """Return the counts of every cell, every failure with its reason, and what is left."""
    cells = tuple(_cell_progress(plan, folder, cell) for cell in plan.cells)
    left = sum(len(plan.methods) - cell.n_done - cell.n_failed for cell in cells)
    return BenchmarkProgress(cells, tuple(_failures(plan, folder)), left, _left_seconds(plan, cells))


def _cell_progress(plan: Plan, folder: BenchmarkFolder, cell: CellPlan) -> CellProgress:
    units = [folder.unit(cell, each) for each in settled_methods(plan, folder, cell)]
    failed = [bool(unit.read("failure")) for unit in units]
    done = [unit for unit, wrong in zip(units, failed, strict=True) if not wrong and is_complete(plan, unit)]
    return CellProgress(
        name=cell.name,
        split="prepared" if folder.is_prepared(cell) else "failed" if folder.cell_failure(cell) else "missing",
        n_done=len(done),
        n_failed=sum(failed),
        n_runs=sum(unit.n_runs for unit in units),
        wanted_runs=plan.file.n_models * len(plan.methods),
        measured_s=sum(_seconds(unit) for unit in done),
        n_measured=len(done),
    )


def _seconds(unit: Unit) -> float:
    times = unit.read("times")
    return float(times.get("all_runs_s", 0.0)) + float(times.get("metrics_s", 0.0))


def _left_seconds(plan: Plan, cells: tuple[CellProgress, ...]) -> float | None:
    """Return the time of what is left: each unit like the mean of its cell, or of all cells where it has none."""
    n_measured = sum(cell.n_measured for cell in cells)
    if n_measured == 0:
        return None
    overall = sum(cell.measured_s for cell in cells) / n_measured
    left = [len(plan.methods) - cell.n_done - cell.n_failed for cell in cells]
    means = [cell.measured_s / cell.n_measured if cell.n_measured else overall for cell in cells]
    return sum(count * mean for count, mean in zip(left, means, strict=True))


def _failures(plan: Plan, folder: BenchmarkFolder) -> list[str]:
    found = []
    for cell in plan.cells:
        if reason := folder.cell_failure(cell):
            found.append(f"{cell.name}: cannot be prepared: {reason}")
        for method in settled_methods(plan, folder, cell):
            if failure := folder.unit(cell, method).read("failure"):
                found.append(f"{cell.name}, {method.label}: F: {failure['message']}")
    return found
