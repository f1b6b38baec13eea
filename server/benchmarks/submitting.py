"""Submits the methods of benchmarks to their cells, once each, whoever looks and however often.

Only a few wait at a time: what `max_hours` ends is not queued yet, and workers meet other work in between.
"""

from collections.abc import Sequence
from datetime import datetime

import structlog
from sqlalchemy.orm import Session

from lethe.benchmark.benchmark_file import BenchmarkFile
from server.benchmarks import benchmark_repository
from server.benchmarks import cells as cell_competitions
from server.benchmarks.benchmarks import takes_submissions
from server.benchmarks.cells import BenchmarkCell, MethodRecord
from server.benchmarks.results import cell_failure
from server.competitions import competition_repository
from server.competitions.stored_file import stored_file
from server.db import Database
from server.metric_results import metric_results
from server.models.account import Account
from server.models.benchmark import Benchmark
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
