"""A benchmark's results out of the database, in the form that the library's tables, figures and checks read."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any

import numpy as np
from pydantic import Field

import lethe
from lethe.benchmark.benchmark_file import BenchmarkFile
from lethe.benchmark.results import assemble, cell_results, method_row
from lethe.benchmark.store import REFERENCES, request_key
from lethe.competition.report_section import MetricRequest
from lethe.metrics import Side
from lethe.runtime.error_classes import place_beside
from server.benchmarks.cells import BenchmarkCell, MethodUnit, benchmark_file, methods
from server.competitions.stored_file import stored_file
from server.metric_results.metric_results import hash_parameters
from server.models.competition import Benchmark, SplitState
from server.models.evaluation import MetricResult, PublicScore


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
    evaluation = unit.evaluation
    if evaluation is None or not unit.is_scored or evaluation.started_at is None or evaluation.finished_at is None:
        return None
    return (evaluation.finished_at - evaluation.started_at).total_seconds()


def _failures(cell: BenchmarkCell) -> list[str]:
    reasons = [f"{cell.name}: cannot be prepared: {reason}"] if (reason := cell_failure(cell)) else []
    for unit in cell.units:
        if reason := failure_reason(unit):
            reasons.append(f"{cell.name}, {unit.method.name}: F: {reason}")
    return reasons


Json = dict[str, Any]


def collect(benchmark: Benchmark, cells: Sequence[BenchmarkCell], scores: dict[str, PublicScore]) -> Json:
    """Return the results that are there now. scores: by the evaluation's id."""
    file = benchmark_file(benchmark)
    packages = {name: version(name) for name in ("numpy", "scipy", "scikit-learn")}
    return assemble(
        file,
        benchmark.text,
        methods=[
            {"name": method.name, "key": method.sha256, "id": method.id, "constants": dict(method.constants)}
            for method in methods(benchmark)
        ],
        cells={cell.name: _cell(cell, file.metrics, scores) for cell in cells},
        versions={"lethe": lethe.__version__, "python": platform.python_version()} | packages,
        machine=platform.machine(),
    )


def _cell(cell: BenchmarkCell, requests: Sequence[MetricRequest], scores: dict[str, PublicScore]) -> Json:
    rows: Json = {}
    for unit in cell.units:
        if reason := failure_reason(unit):
            rows[unit.method.name] = {"failure": reason, "values": {}}
        elif unit.evaluation is not None and unit.is_done(requests) and (score := scores.get(unit.evaluation.id)):
            rows[unit.method.name] = _row(unit, requests, score)
    for name, side in REFERENCES.items():
        if (kept := _reference(cell, side, requests)) is not None:
            rows[name] = method_row(requests, kept, epsilon=None)
    split: Json = {"versions": cell.split.versions, "retraining_time_s": cell.split.retraining_time_s}
    split |= {"manifest_sha256": cell.split.manifest_sha256, "device": cell.split.device}
    return cell_results(cell.key, stored_file(cell.competition), failure=cell_failure(cell), split=split, rows=rows)


def _row(unit: MethodUnit, requests: Sequence[MetricRequest], score: PublicScore) -> Json:
    kept: Json = {"accuracies": score.details.get("accuracies", {})}
    metrics = _by_request(unit.metrics)
    for request in requests:
        if request.id in ("score", "f"):
            kept[request_key(request)] = _score(score, request.id)
        elif row := metrics.get((request.id, hash_parameters(request.parameters))):
            kept[request_key(request)] = _metric(row)
    epsilon = None if score.epsilon is None else np.frombuffer(score.epsilon, "<f4").astype(float).tolist()
    made = method_row(requests, kept, epsilon=epsilon)
    submission = unit.submission.id if unit.submission else None
    return made | {"submission": submission, "times": {"run_wall_time_s": score.details.get("run_wall_time_s")}}


def _score(score: PublicScore, name: str) -> Json:
    ratios = {"retain_ratio": score.retain_ratio, "test_ratio": score.test_ratio}
    if name == "f":
        interval = score.details.get("forgetting_quality_interval")
        return {"value": score.forgetting_quality, "interval": interval, "table": ratios, "notes": []}
    interval = None if score.interval_low is None else [score.interval_low, score.interval_high]
    return {"value": score.final_score, "interval": interval, "table": ratios, "notes": []}


def _metric(row: MetricResult) -> Json:
    if row.not_computed:
        return {"not_computed": row.not_computed}
    return {
        "value": row.value,
        "interval": None if row.interval_low is None else [row.interval_low, row.interval_high],
        "standard_deviation": row.standard_deviation,
        "table": row.table,
        "notes": row.notes,
    }


def _reference(cell: BenchmarkCell, side: Side, requests: Sequence[MetricRequest]) -> Json | None:
    """Return what is known of a reference: its scores of the prepared split, its metrics beside any method's."""
    known = ((cell.split.oracle or {}).get("references") or {}).get(side.value)
    if known is None:
        return None
    kept: Json = {"accuracies": known["accuracies"]}
    reference: dict[tuple[str, str], MetricResult] = {}
    for unit in cell.units:
        reference = _by_request([row for row in unit.metrics if row.computed_at and not row.not_computed]) | reference
    for request in requests:
        if request.id in ("score", "f"):
            kept[request_key(request)] = known[request.id]
        elif row := reference.get((request.id, hash_parameters(request.parameters))):
            value = row.oracle if side is Side.ORACLE else row.original
            kept[request_key(request)] = {"value": value, "interval": None, "standard_deviation": None, "table": {}}
    return kept


def _by_request(rows: Sequence[MetricResult]) -> dict[tuple[str, str], MetricResult]:
    return {(row.metric_id, row.parameters_sha256): row for row in rows}
