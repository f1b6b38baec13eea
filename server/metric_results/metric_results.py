"""Metrics beside the score: asked for when a score is recorded, computed by their own task, shown as allowed.

The board never waits for them, and one that cannot be computed is a sentence, never a failed submission.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict
from sqlalchemy.orm import Session

from lethe.competition.file import CompetitionFile
from lethe.competition.report_section import MetricRequest
from lethe.competition.visibility import Visibility
from lethe.metrics.core.registry import metric, metrics
from server.db import now
from server.disclosure import gate
from server.evaluations import leak_budget
from server.jobs.leases import METRICS
from server.metric_results import metric_result_repository
from server.metric_results.metric_result_repository import SubmissionValue
from server.models.competition import Competition, Split
from server.models.evaluation import Evaluation, MetricResult
from server.models.submission import Submission
from server.queue import COMPUTE_METRICS, send_after_commit

UPGRADE_WINDOW = timedelta(minutes=10)  # until then processes of two versions may work side by side
MAX_MESSAGES = 20
MAX_ROWS = 1000  # in which they are looked for


class ComputedMetric(BaseModel):
    """What the worker found for one metric."""

    model_config = ConfigDict(frozen=True)

    metric_version: int
    value: float | None = None
    interval_low: float | None = None
    interval_high: float | None = None
    standard_deviation: float | None = None
    oracle: float | None = None
    original: float | None = None
    table: dict[str, Any] = {}
    notes: list[str] = []
    not_computed: str = ""


@dataclass(frozen=True)
class WaitingMetric:
    """A metric that is to be computed. attempts: begun before, and ended with their worker."""

    row_id: int
    metric_id: str
    parameters: Mapping[str, Any]
    attempts: int


def request(session: Session, evaluation: Evaluation, file: CompetitionFile) -> int:
    """Ask for the metrics of the competition's report that an evaluation lacks. Return how many were asked for."""
    known = {
        (row.metric_id, row.parameters_sha256) for row in metric_result_repository.of_evaluation(session, evaluation.id)
    }
    asked = [each for each in file.report.metrics if (each.id, hash_parameters(each.parameters)) not in known]
    session.add_all(_row(evaluation.id, each) for each in asked)
    if asked:
        send_after_commit(session, COMPUTE_METRICS, evaluation.id)
    return len(asked)


def waiting(session: Session, evaluation_id: str) -> list[WaitingMetric]:
    """Return what is to be computed for an evaluation."""
    rows = metric_result_repository.waiting(session, evaluation_id)
    return [WaitingMetric(row.id, row.metric_id, row.parameters, row.attempts) for row in rows]


def record(session: Session, computed: Mapping[int, ComputedMetric]) -> None:
    """Store computed metrics by their row's id. Doing it twice changes nothing.

    What a submission of a team tells it is counted in its leak budget: the first value of each row, if the team sees it
    now. What is opened later or computed again comes without a submission and is not counted.
    """
    bits: defaultdict[str, float] = defaultdict(float)
    for row_id, result in computed.items():
        row = session.get(MetricResult, row_id)
        if row is None:
            continue
        if row.metric_version is None:
            bits[row.evaluation_id] += gate.bits_of_metric(result)
        for name, value in result.model_dump().items():
            setattr(row, name, value)
        row.computed_at = now()
    for evaluation_id, told in bits.items():
        evaluation = session.get_one(Evaluation, evaluation_id)
        split = session.get_one(Split, evaluation.split_id)
        competition = session.get_one(Competition, split.competition_id)
        if split.visibility == Visibility.PUBLIC and gate.shows_metrics(competition, Visibility.PUBLIC):
            leak_budget.count(session, evaluation, told)


def lost(session: Session, *, lease_s: float) -> Sequence[str]:
    """Return evaluations whose metrics have waited so long that their message must be lost."""
    rows = METRICS.due(session, now() - timedelta(seconds=lease_s), limit=MAX_ROWS)
    return list(dict.fromkeys(row.evaluation_id for row in rows))[:MAX_MESSAGES]


def begin(session: Session, metric: WaitingMetric) -> None:
    """Count an attempt at a metric that is computed next."""
    METRICS.begin(session, metric.row_id, metric.attempts, until=now())


def take_back(session: Session, metric: WaitingMetric) -> None:
    """Count an attempt no more: the host's fault ended it, and it is tried again."""
    METRICS.take_back(session, metric.row_id, metric.attempts)


def keep(session: Session, evaluation_id: str) -> None:
    """Note that an evaluation's metrics are being computed: their message is not lost."""
    METRICS.postpone(session, MetricResult.evaluation_id == evaluation_id, until=now())


def recompute_outdated(session: Session) -> Sequence[str]:
    """Mark values of an older version, which stood a while, for computing again. Return some evaluations."""
    risen = {entry.id: entry.version for entry in metrics().values() if entry.version > 1}
    rows = metric_result_repository.outdated(session, risen, computed_before=now() - UPGRADE_WINDOW, limit=MAX_MESSAGES)
    metric_result_repository.ask_again(session, [row.id for row in rows], at=now())
    return list(dict.fromkeys(row.evaluation_id for row in rows))


def recompute(session: Session, competition: Competition, file: CompetitionFile, *, only_stale: bool) -> int:
    """Ask for a competition's metrics again (only_stale: outdated or missing ones). Return how many evaluations."""
    asked = 0
    for evaluation in metric_result_repository.scored_evaluations(session, competition.id):
        new = request(session, evaluation, file)
        rows = [
            row for row in metric_result_repository.of_evaluation(session, evaluation.id) if row.computed_at is not None
        ]
        again = [row.id for row in rows if not only_stale or row.metric_version != metric(row.metric_id).version]
        metric_result_repository.ask_again(session, again, at=now())
        if again:
            send_after_commit(session, COMPUTE_METRICS, evaluation.id)
        asked += bool(new or again)
    return asked


def of_submission(
    session: Session, submission: Submission, visibility: Visibility, *, is_organiser: bool
) -> Sequence[MetricResult]:
    """Return a submission's metrics on a split, as the caller may see them. Raises NotFound where they may not."""
    gate.check_metrics(submission.competition, visibility, organiser=is_organiser)
    evaluation = metric_result_repository.current_evaluation(session, submission.id, visibility.value)
    return metric_result_repository.of_evaluation(session, evaluation.id) if evaluation is not None else []


def of_competition(
    session: Session, competition: Competition, visibility: Visibility, metric_ids: Sequence[str]
) -> dict[str, dict[str, MetricResult]]:
    """Return computed metrics by submission id and metric id, for organisers."""
    evaluations = metric_result_repository.scored_evaluations(session, competition.id, visibility=visibility.value)
    submission_of = {evaluation.id: evaluation.submission_id for evaluation in evaluations}
    results: dict[str, dict[str, MetricResult]] = {}
    for row in metric_result_repository.get_values(session, list(submission_of), metric_ids):
        results.setdefault(submission_of[row.evaluation_id], {})[row.metric_id] = row
    return results


def of_submissions(
    session: Session, visibility: Visibility, submission_ids: Sequence[str], asked: MetricRequest
) -> list[SubmissionValue]:
    """Return one metric of those submissions that have it computed; the newest result last."""
    return metric_result_repository.of_submissions(
        session,
        visibility.value,
        submission_ids,
        metric_id=asked.id,
        parameters_sha256=hash_parameters(asked.parameters),
    )


def hash_parameters(parameters: Mapping[str, Any]) -> str:
    """Return the hash that distinguishes sets of parameters."""
    return hashlib.sha256(json.dumps(dict(parameters), sort_keys=True).encode()).hexdigest()


def _row(evaluation_id: str, asked: MetricRequest) -> MetricResult:
    return MetricResult(
        evaluation_id=evaluation_id,
        metric_id=asked.id,
        parameters=asked.parameters,
        parameters_sha256=hash_parameters(asked.parameters),
    )
