"""Cells: hidden competitions with one split, keyed by their content, which all benchmarks share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from json import dumps
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from lethe.benchmark.benchmark_file import SCORES, BenchmarkFile, Scalar
from lethe.benchmark.plan import cell_key
from lethe.competition.file import CompetitionFile
from lethe.competition.report_section import MetricRequest
from lethe.competition.section import as_stored, read_stored
from lethe.competition.visibility import Visibility
from lethe.errors import InvalidCompetitionFile
from server import audit
from server.benchmarks import benchmark_repository
from server.competitions import competitions
from server.competitions.stored_file import stored_file
from server.metric_results import metric_results
from server.metric_results.metric_results import hash_parameters
from server.models.account import Account
from server.models.competition import Benchmark, Competition, CompetitionOrganiser, CompetitionState, Split, SplitState
from server.models.evaluation import Evaluation, MetricResult
from server.models.submission import Stage, Submission

OPENS_AT, CLOSES_AT = datetime(2999, 1, 1, tzinfo=UTC), datetime(2999, 12, 31, tzinfo=UTC)  # never


def checked_cell(given: dict[str, Any], *, name: str, organiser: Account) -> CompetitionFile:
    """Return a cell's competition under the name of its content. Raises InvalidCompetitionFile or NotAllowed."""
    fixed = {"opens_at": OPENS_AT, "closes_at": CLOSES_AT, "merge_deadline": None, "weak_seed": True}
    try:
        file = CompetitionFile.model_validate({**given, **fixed})
        file = CompetitionFile.model_validate({**file.model_dump(), "slug": f"cell-{cell_key(file)}"})
    except ValidationError as error:
        raise InvalidCompetitionFile.from_validation(error, source=f"cell {name!r}") from error
    competitions.check_trust(file, organiser)
    return file


def ensure(session: Session, file: CompetitionFile, *, organiser: Account) -> Competition:
    """Return the cell's competition, with these metrics asked for, and queue its preparation where needed."""
    key = cell_key(file)
    competition = benchmark_repository.cell_competition(session, key) or _create(
        session, file, key, organiser=organiser
    )
    if session.get(CompetitionOrganiser, (competition.id, organiser.id)) is None:
        session.add(CompetitionOrganiser(competition_id=competition.id, account_id=organiser.id))
    _ask_for_metrics(session, competition, file)
    split = competitions.get_split(session, competition, Visibility.PUBLIC)
    if competition.state == CompetitionState.DRAFT or split.state == SplitState.FAILED:
        competitions.prepare(session, competition, actor=organiser)
    return competition


def _create(session: Session, file: CompetitionFile, key: str, *, organiser: Account) -> Competition:
    competition = competitions.draft(file, dumps(as_stored(file), indent=1), organiser=organiser)
    competition.cell_key = key
    try:
        with session.begin_nested():
            session.add(competition)
    except IntegrityError:  # another benchmark was quicker
        quicker = benchmark_repository.cell_competition(session, key)
        if quicker is None:
            raise
        return quicker
    session.add(Split(competition_id=competition.id, visibility=Visibility.PUBLIC.value))
    audit.record(session, organiser, "competition.created", competition=competition, subject=competition.slug)
    session.flush()
    return competition


def _ask_for_metrics(session: Session, competition: Competition, file: CompetitionFile) -> None:
    known = stored_file(competition).report.metrics
    new = [request for request in file.report.metrics if request not in known]
    if not new:
        return
    report = {**competition.config["report"], "metrics": [each.model_dump(mode="json") for each in (*known, *new)]}
    competition.config = competition.config | {"report": report}
    session.flush()
    metric_results.recompute(session, competition, stored_file(competition), only_stale=True)


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
