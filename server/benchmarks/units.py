"""The pairs of method and cell of a benchmark, and what is there of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict
from sqlalchemy.orm import Session

from lethe.benchmark.benchmark_file import SCORES, BenchmarkFile, Scalar
from lethe.competition.report_section import MetricRequest
from lethe.competition.stored_document import read_stored
from server.benchmarks import benchmark_repository
from server.metric_results.metric_results import hash_parameters
from server.models.benchmark import Benchmark
from server.models.competition import Competition, Split
from server.models.evaluation import Evaluation, MetricResult
from server.models.submission import Stage, Submission


class MethodRecord(BaseModel):
    """A method as a benchmark keeps it. sha256: of its file, by which benchmarks share its submissions."""

    model_config = ConfigDict(frozen=True)

    name: str
    source: str
    sha256: str
    kind: str
    entry_point: dict[str, Any]
    id: str | None = None
    constants: dict[str, Scalar] = {}


@dataclass(frozen=True)
class MethodUnit:
    """A method in a cell. evaluation: the one that counts. metrics: asked for so far."""

    method: MethodRecord
    submission: Submission | None
    evaluation: Evaluation | None
    metrics: Sequence[MetricResult]

    @property
    def has_failed(self) -> bool:
        return self.submission is not None and self.submission.stage in (Stage.FAILED, Stage.CANCELLED)

    @property
    def is_scored(self) -> bool:
        return self.submission is not None and self.submission.stage == Stage.SCORED

    def is_done(self, requests: Sequence[MetricRequest]) -> bool:
        """Return whether the unit has its score and has tried each of these metrics."""
        tried = {(row.metric_id, row.parameters_sha256) for row in self.metrics if row.computed_at is not None}
        wanted = {(each.id, hash_parameters(each.parameters)) for each in requests if each.id not in SCORES}
        return self.is_scored and wanted <= tried


@dataclass(frozen=True)
class BenchmarkCell:
    """One cell with all its units, in the order of the methods."""

    name: str
    key: str
    competition: Competition
    split: Split
    units: tuple[MethodUnit, ...]


def benchmark_file(benchmark: Benchmark) -> BenchmarkFile:
    """Return the benchmark's file, as the checked model."""
    return read_stored(BenchmarkFile, benchmark.config)


def methods(benchmark: Benchmark) -> list[MethodRecord]:
    return [read_stored(MethodRecord, each) for each in benchmark.methods]


def cells(session: Session, benchmark: Benchmark) -> list[BenchmarkCell]:
    """Return every cell of a benchmark with what is there of it, in a fixed number of queries."""
    ids = [cell["competition_id"] for cell in benchmark.cells]
    entries = methods(benchmark)
    known = benchmark_repository.submissions(session, ids, [method.sha256 for method in entries])
    evaluations = benchmark_repository.evaluations(session, [submission.id for submission in known.values()])
    metrics = benchmark_repository.metric_results(session, [evaluation.id for evaluation in evaluations.values()])
    competitions, splits = benchmark_repository.competitions(session, ids), benchmark_repository.splits(session, ids)
    return [
        BenchmarkCell(
            name=cell["name"],
            key=cell["key"],
            competition=competitions[cell["competition_id"]],
            split=splits[cell["competition_id"]],
            units=tuple(_unit(cell["competition_id"], method, known, evaluations, metrics) for method in entries),
        )
        for cell in benchmark.cells
    ]


def _unit(
    competition_id: str,
    method: MethodRecord,
    known: Mapping[tuple[str, str], Submission],
    evaluations: Mapping[str, Evaluation],
    metrics: Mapping[str, Sequence[MetricResult]],
) -> MethodUnit:
    submission = known.get((competition_id, method.sha256))
    evaluation = evaluations.get(submission.id) if submission else None
    return MethodUnit(method, submission, evaluation, metrics.get(evaluation.id, ()) if evaluation else ())
