"""Benchmarks: taken, found, shown, and submitted what is missing."""

from collections.abc import Sequence
from datetime import datetime

import structlog
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from lethe.benchmark.benchmark_file import BenchmarkFile
from lethe.benchmark.store import describe_change
from lethe.competition.file import CompetitionFile
from lethe.errors import InvalidInput, NotFound, Violation
from server import audit
from server.benchmarks import benchmark_repository, results
from server.benchmarks import cells as cell_competitions
from server.benchmarks.cells import BenchmarkCell, MethodRecord
from server.benchmarks.results import BenchmarkProgress, benchmark_progress, cell_failure
from server.competitions import competition_repository
from server.competitions.stored_file import stored_file
from server.db import Database
from server.errors import Conflict, NotAllowed
from server.evaluations import rerun
from server.metric_results import metric_results
from server.models.account import Account, Role
from server.models.competition import Benchmark, Competition, CompetitionState
from server.models.submission import ENDED
from server.storage import Storage
from server.submissions.submissions import create_submission
from server.submissions.upload_check import CheckedUpload, Upload, store_content
from server.teams import teams

log = structlog.get_logger()
MAX_WAITING = 16  # submissions of one benchmark that have not ended


def submit_missing(database: Database, storage: Storage, *, at: datetime) -> int:
    """Submit what benchmarks lack and what may wait now. Return how many. Safe to run twice, and at once."""
    with database.read() as session:
        ids = [benchmark.id for benchmark in benchmark_repository.submitting(session, at)]
    return sum(_advance(database, storage, benchmark_id, at=at) for benchmark_id in ids)


def _advance(database: Database, storage: Storage, benchmark_id: str, *, at: datetime) -> int:
    with database.write() as session:
        benchmark = benchmark_repository.locked(session, benchmark_id)
        cells = cell_competitions.cells(session, benchmark)
        waiting = sum(
            unit.submission is not None and unit.submission.stage not in ENDED for cell in cells for unit in cell.units
        )
        missing = _missing(cells)[: max(0, MAX_WAITING - waiting)]
        for cell, method in missing:
            _submit(session, storage, cell, method, at=at)
        asked = _ask_for_metrics(session, cell_competitions.benchmark_file(benchmark), cells)
        _note_end(benchmark, cells, is_quiet=waiting + len(missing) + asked == 0, at=at)
    if missing:
        log.info("methods submitted", benchmark=benchmark.slug, submissions=len(missing))
    return len(missing)


def _missing(cells: Sequence[BenchmarkCell]) -> list[tuple[BenchmarkCell, MethodRecord]]:
    ready = [cell for cell in cells if takes_submissions(cell.competition)]
    return [(cell, unit.method) for cell in ready for unit in cell.units if unit.submission is None]


def _submit(session: Session, storage: Storage, cell: BenchmarkCell, method: MethodRecord, *, at: datetime) -> None:
    """Submit a method under the cell's lock, unless another benchmark did so meanwhile."""
    competition = competition_repository.locked(session, cell.competition.id)
    if benchmark_repository.submissions(session, [competition.id], [method.sha256]):
        return
    content = method.source.encode()
    upload = Upload("unlearning.py", content, method.name, received_at=at)
    checked = CheckedUpload(upload, method.kind, store_content(storage, content), method.entry_point)
    organiser = session.get_one(Account, competition.created_by)
    team = teams.add_baseline(session, competition, organiser, label=method.name)
    create_submission(session, competition, team, organiser, checked, automatic=True)


def _ask_for_metrics(session: Session, file: BenchmarkFile, cells: Sequence[BenchmarkCell]) -> int:
    """Ask for the metrics of units that were scored by what the cell asked for before. Return of how many."""
    asked = 0
    for cell in cells:
        competition_file = stored_file(cell.competition)
        for unit in cell.units:
            if unit.evaluation is not None and unit.is_scored and not unit.is_done(file.metrics):
                metric_results.request(session, unit.evaluation, competition_file)
                asked += 1
    return asked


def _note_end(benchmark: Benchmark, cells: Sequence[BenchmarkCell], *, is_quiet: bool, at: datetime) -> None:
    ended = all(takes_submissions(cell.competition) or cell_failure(cell) for cell in cells)
    if is_quiet and ended:
        benchmark.complete_at = at


def get(session: Session, slug: str, *, account: Account) -> Benchmark:
    """Return a benchmark of the account; an administrator's are all. Raises NotFound."""
    benchmark = benchmark_repository.by_slug(session, slug)
    if benchmark is None or not _is_theirs(benchmark, account):
        raise NotFound(f"You have no benchmark {slug!r}")
    return benchmark


def list_own(session: Session, account: Account) -> list[Benchmark]:
    """Return the account's benchmarks, the newest first; an administrator's are all."""
    return [benchmark for benchmark in benchmark_repository.everything(session) if _is_theirs(benchmark, account)]


def check_organiser(account: Account) -> None:
    """Raise NotAllowed for participants."""
    if account.role not in (Role.ORGANISER, Role.ADMINISTRATOR):
        raise NotAllowed(f"{account.name} is a {account.role}; only organisers run benchmarks")


def check_parts(file: BenchmarkFile, *, cells: Sequence[str], methods: Sequence[str]) -> None:
    """Raise InvalidInput unless the names of cells and methods fit the file."""
    _check_names("cells", cells, [cell.name for cell in file.cell])
    _check_names("methods", methods, [entry.label for entry in file.methods])


def store(
    session: Session,
    file: BenchmarkFile,
    text: str,
    *,
    cells: Sequence[tuple[str, CompetitionFile]],
    methods: Sequence[MethodRecord],
    account: Account,
    until: datetime | None,
) -> tuple[Benchmark, str]:
    """Store what is asked for and prepare its cells. Return it, and what is new. Raises NotAllowed, Conflict."""
    check_organiser(account)
    benchmark = _own(session, file.slug, account)
    made = [(name, cell_competitions.ensure(session, cell, organiser=account)) for name, cell in cells]
    before = ({cell["name"]: cell["key"] for cell in benchmark.cells}, _keys(cell_competitions.methods(benchmark)))
    benchmark.text, benchmark.config = text, file.model_dump(mode="json")
    benchmark.cells = [{"name": name, "key": made.cell_key, "competition_id": made.id} for name, made in made]
    benchmark.methods = [method.model_dump(mode="json") for method in methods]
    benchmark.submits_until, benchmark.complete_at = until, None
    after = ({cell["name"]: cell["key"] for cell in benchmark.cells}, _keys(methods))
    kept = {"cells": before[0], "methods": before[1]} if before[0] else {}
    audit.record(session, account, "benchmark.stored", subject=benchmark.slug)
    session.flush()
    return benchmark, describe_change(kept, *after)


def retry_failed(session: Session, benchmark: Benchmark) -> int:
    """Run failed units again. Return how many. Those that failed by the host's fault are retried automatically."""
    failed = [
        (cell, unit) for cell in cell_competitions.cells(session, benchmark) for unit in cell.units if unit.has_failed
    ]
    for cell, unit in failed:
        if unit.submission is not None:
            rerun.instead(session, unit.submission, cell.split)
    return len(failed)


def progress(session: Session, benchmark: Benchmark) -> BenchmarkProgress:
    return benchmark_progress(cell_competitions.benchmark_file(benchmark), cell_competitions.cells(session, benchmark))


def get_results(session: Session, benchmark: Benchmark) -> results.Json:
    """Return all that is there, in the form that `lethe benchmark table` and `report` read."""
    cells = cell_competitions.cells(session, benchmark)
    evaluated = [unit.evaluation.id for cell in cells for unit in cell.units if unit.evaluation is not None]
    return results.collect(benchmark, cells, benchmark_repository.scores(session, evaluated))


def takes_submissions(competition: Competition) -> bool:
    """Return whether a cell's split is ready."""
    return competition.state == CompetitionState.READY


def _own(session: Session, slug: str, account: Account) -> Benchmark:
    benchmark = benchmark_repository.by_slug(session, slug)
    if benchmark is None:
        benchmark = Benchmark(slug=slug, text="", config={}, cells=[], methods=[], created_by=account.id)
        try:
            with session.begin_nested():
                session.add(benchmark)
        except IntegrityError as error:
            raise Conflict(f"The benchmark {slug!r} is being stored by another request; try again") from error
    if not _is_theirs(benchmark, account):
        taken = Violation("file.slug", "is taken; choose another", slug)
        raise Conflict(f"There is already a benchmark called {slug!r}", violations=(taken,))
    return benchmark_repository.locked(session, benchmark.id)


def _is_theirs(benchmark: Benchmark, account: Account) -> bool:
    return account.role == Role.ADMINISTRATOR or benchmark.created_by == account.id


def _keys(methods: Sequence[MethodRecord]) -> dict[str, str]:
    return {method.name: method.sha256 for method in methods}


def _check_names(kind: str, given: Sequence[str], wanted: Sequence[str | None]) -> None:
    fits = len(given) == len(wanted) and all(want in (None, name) for name, want in zip(given, wanted, strict=True))
    if not fits or len(set(given)) != len(given):
        expected = ", ".join(name or "any name" for name in wanted)
        wrong = Violation(kind, f"must be those of the file, in its order, each once: {expected}"[:500])
        raise InvalidInput(f"The {kind} do not fit the benchmark file", violations=(wrong,))
