"""How far a benchmark is, in a folder or on a server, and how long the rest takes, from the times of what is done."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from lethe.benchmark.estimate import RUN_S, CellEstimate, estimate
from lethe.benchmark.plan import CellPlan, Plan
from lethe.benchmark.store import BenchmarkFolder, is_complete, settled_methods, study_file
from lethe.client.api import LetheClient, Unreachable
from lethe.competition.preparation_share import preparation_share
from lethe.errors import HostFault, InvalidInput
from lethe.preparation.step_cache import PreparationProgress
from lethe.tuning.study import Study

Json = dict[str, Any]
LOOK_EVERY_S, LOST_AFTER = 5.0, 60  # answers in a row


def put_benchmark(client: LetheClient, plan: Plan, *, max_hours: float | None = None, retry: bool = False) -> Json:
    """Send what the plan asks for. Return the server's status; `changed` says what is new to it.

    max_hours: nothing is submitted after that, 0 stops it now. retry: run again what failed.
    """
    if plan.file.tune is not None:
        raise InvalidInput(
            "[tune] searches in a folder of this machine: run it without --server, then send a file without [tune] "
            "whose methods have the chosen constants, which `lethe benchmark tuned` prints"
        )
    body = {
        "file": plan.file.model_dump(mode="json"),
        "text": plan.text,
        "cells": [{"name": cell.name, "competition": cell.competition.model_dump(mode="json")} for cell in plan.cells],
        "methods": [
            {
                "name": method.label,
                "source": method.files["unlearning.py"],
                "id": method.method_id,
                "constants": dict(method.constants),
            }
            for method in plan.methods
        ],
        "max_hours": max_hours,
        "retry_failed": retry,
    }
    answer: Json = client.put(f"/benchmarks/{plan.file.slug}", body)
    return answer


def get_status(client: LetheClient, slug: str) -> Json:
    """Return how far a benchmark is."""
    answer: Json = client.get(f"/benchmarks/{slug}")
    return answer


def get_results(client: LetheClient, slug: str) -> Json:
    """Return a benchmark's results, as `lethe.benchmark.results.collect` makes them from a folder."""
    answer: Json = client.get(f"/benchmarks/{slug}/results")
    return answer


def wait(client: LetheClient, slug: str, say: Callable[[str], None], *, every_s: float = LOOK_EVERY_S) -> Json:
    """Return the status once nothing is left, or nothing more is submitted. Lives through restarts of the server."""
    said, lost = "", 0
    while True:
        try:
            status = get_status(client, slug)
            lost = 0
        except Unreachable as error:
            lost += 1
            if lost >= LOST_AFTER:
                raise HostFault(f"{error.detail} The benchmark goes on; `lethe benchmark status` shows it") from error
            time.sleep(every_s)
            continue
        if (text := status_text(status)) != said:
            said = text
            say(text)
        until = status["submits_until"]
        is_stopped = until is not None and datetime.fromisoformat(until) <= datetime.now(UTC)
        if status["left"] == 0 or status["complete_at"] or is_stopped:
            return status
        time.sleep(every_s)


def status_text(status: Json) -> str:
    """Return one line: what is done, failed, left, and the estimate."""
    done, failed = (sum(cell[name] for cell in status["progress"]) for name in ("n_done", "n_failed"))
    preparing = sum(cell["split"] in ("pending", "preparing") for cell in status["progress"])
    left = left_text(status["left"], status["left_s"])
    return f"{done} done, {failed} failed, {preparing} cells in preparation, left: {left}"


def left_text(left: int, left_s: float | None, *, of: str = "worker") -> str:
    """Return how much is left, and about how long one worker, or process, takes for it."""
    if left == 0:
        return "nothing"
    text = f"{left} of method x cell"
    return text if left_s is None else f"{text}, about {left_s / 60:.0f} minutes of one {of}"


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
        return left_text(self.left_units, self.left_s, of="process")

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
    times = [unit.read("times") for unit in done]
    return CellProgress(
        name=cell.name,
        split="prepared" if folder.is_prepared(cell) else "failed" if folder.cell_failure(cell) else "missing",
        n_done=len(done),
        n_failed=sum(failed),
        n_runs=sum(unit.n_runs for unit in units),
        wanted_runs=plan.file.n_models * len(plan.methods),
        measured_s=sum(each.get("all_runs_s", 0.0) + each.get("metrics_s", 0.0) for each in times),
        n_measured=len(done),
    )


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


@dataclass
class ShareDone:
    """Looks how much is done. Cells are weighted by their estimated time: models to train, then runs."""

    plan: Plan
    folder: BenchmarkFolder
    device: str
    _weights: dict[str, tuple[float, float]] = field(default_factory=dict)
    _preparing: dict[str, float] = field(default_factory=dict)

    def note_preparation(self, cell: CellPlan, state: PreparationProgress) -> None:
        """Remember how far the preparation of a cell is."""
        share = preparation_share(cell.competition, stage=state.stage, progress=state.done / max(state.total, 1))
        self._preparing[cell.name] = max(share, self._preparing.get(cell.name, 0.0))

    def now(self) -> tuple[float, str]:
        """Return the share done, 0 to 1, and the counts in words."""
        if not self._weights:
            found = estimate(self.plan, device=self.device)
            self._weights = {cell.name: _weights(cell, by_time=found.is_whole) for cell in found.cells}
        progress = benchmark_progress(self.plan, self.folder)
        done = sum(self._done(cell) for cell in progress.cells) + self._searched()
        total = sum(sum(weights) for weights in self._weights.values())
        prepared = sum(cell.split == "prepared" for cell in progress.cells)
        words = f"{prepared} of {len(progress.cells)} cells prepared, {progress.left_units} of method x cell left"
        return done / total, words

    def _done(self, cell: CellProgress) -> float:
        training, unlearning = self._weights[cell.name]
        methods = len(self.plan.methods)
        of_runs = max(cell.n_runs / max(cell.wanted_runs, 1), (cell.n_done + cell.n_failed) / methods)
        return training * self._prepared(cell.name, is_prepared=cell.split != "missing") + unlearning * min(
            of_runs, 1.0
        )

    def _searched(self) -> float:
        """Return what is done of the splits that constants are searched on: their preparation and the searches."""
        done = 0.0
        for cell in self.plan.search_cells:
            training, runs = self._weights[cell.name]
            done += training * self._prepared(cell.name, is_prepared=self.folder.is_prepared(cell))
            files = [study_file(self.plan, self.folder, cell, each) for each in self.plan.methods if each.searched]
            tune = self.plan.file.tune
            shares = [Study.read(each).share_done(tune.plan) if tune and each.is_file() else 0.0 for each in files]
            done += runs * sum(shares) / max(len(shares), 1)
        return done

    def _prepared(self, name: str, *, is_prepared: bool) -> float:
        return 1.0 if is_prepared else self._preparing.get(name, 0.0)


def _weights(cell: CellEstimate, *, by_time: bool) -> tuple[float, float]:
    if by_time and cell.training_s is not None and cell.unlearning_s is not None:
        return cell.training_s, cell.unlearning_s
    return float(cell.models), cell.runs * RUN_S
