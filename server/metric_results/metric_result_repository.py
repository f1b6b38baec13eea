"""Queries about metrics beside the score."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import and_, or_, select, update
from sqlalchemy.orm import Session, joinedload

from server.models.competition import Split
from server.models.evaluation import Evaluation, EvaluationState, MetricResult, score_table
from server.models.submission import Submission

BATCH_SIZE = 1000  # ids in one statement
MAX_CANDIDATES = 100


@dataclass(frozen=True)
class ComparedRow:
    """A submission with its team, and its score on a split. epsilon: as it is stored."""

    submission: Submission
    evaluation_id: str
    final_score: float
    interval_low: float | None
    interval_high: float | None
    epsilon: bytes | None


def of_evaluation(session: Session, evaluation_id: str) -> Sequence[MetricResult]:
    """Return an evaluation's metrics, in the order in which they were asked for."""
    statement = select(MetricResult).where(MetricResult.evaluation_id == evaluation_id).order_by(MetricResult.id)
    return session.scalars(statement).all()


def waiting(session: Session, evaluation_id: str) -> Sequence[MetricResult]:
    """Return the evaluation's metrics that are not computed yet."""
    return [row for row in of_evaluation(session, evaluation_id) if row.computed_at is None]


def outdated(
    session: Session, versions: Mapping[str, int], *, computed_before: datetime, limit: int
) -> Sequence[MetricResult]:
    """Return results of a lower version than `versions` gives for their metric, but those that failed."""
    if not versions:
        return []
    older = (
        and_(MetricResult.metric_id == metric_id, MetricResult.metric_version.between(1, version - 1))
        for metric_id, version in versions.items()
    )
    statement = select(MetricResult).where(MetricResult.computed_at < computed_before, or_(*older)).limit(limit)
    return session.scalars(statement).all()


def scored_evaluations(session: Session, competition_id: str, *, visibility: str | None = None) -> Sequence[Evaluation]:
    """Return the current scored evaluations of a competition, on one split or on both."""
    statement = (
        select(Evaluation)
        .join(Split, Split.id == Evaluation.split_id)
        .where(
            Split.competition_id == competition_id,
            Evaluation.state == EvaluationState.SCORED.value,
            Evaluation.is_current.is_(True),
        )
        .order_by(Evaluation.id)
    )
    if visibility is not None:
        statement = statement.where(Split.visibility == visibility)
    return session.scalars(statement).all()


def current_evaluation(session: Session, submission_id: str, visibility: str) -> Evaluation | None:
    """Return a submission's evaluation on a split that counts, if it is scored."""
    statement = (
        select(Evaluation)
        .join(Split, Split.id == Evaluation.split_id)
        .where(
            Evaluation.submission_id == submission_id,
            Split.visibility == visibility,
            Evaluation.state == EvaluationState.SCORED.value,
            Evaluation.is_current.is_(True),
        )
    )
    return session.scalars(statement).first()


def ask_again(session: Session, ids: Sequence[int], *, at: datetime) -> None:
    """Mark rows as waiting."""
    if ids:
        statement = (
            update(MetricResult).where(MetricResult.id.in_(ids)).values(computed_at=None, attempts=0, requested_at=at)
        )
        session.execute(statement)


def get_values(session: Session, evaluation_ids: Sequence[str], metric_ids: Sequence[str]) -> Sequence[MetricResult]:
    """Return computed metrics of many evaluations."""
    statement = select(MetricResult).where(
        MetricResult.evaluation_id.in_(evaluation_ids),
        MetricResult.metric_id.in_(metric_ids),
        MetricResult.computed_at.is_not(None),
    )
    return session.scalars(statement).all()


class SubmissionValue(NamedTuple):
    """One metric of one submission, without what only its own page shows."""

    submission_id: str
    value: float | None
    interval_low: float | None
    interval_high: float | None
    oracle: float | None
    original: float | None


def of_submissions(
    session: Session, visibility: str, submission_ids: Sequence[str], *, metric_id: str, parameters_sha256: str
) -> list[SubmissionValue]:
    """Return one computed metric of evaluations that count, the newest last, as plain rows."""
    row = MetricResult
    statement = (
        select(
            row.computed_at,
            row.id,
            Evaluation.submission_id,
            row.value,
            row.interval_low,
            row.interval_high,
            row.oracle,
            row.original,
        )
        .join(Evaluation, Evaluation.id == row.evaluation_id)
        .join(Split, Split.id == Evaluation.split_id)
        .where(
            Split.visibility == visibility,
            Evaluation.is_current.is_(True),
            row.metric_id == metric_id,
            row.parameters_sha256 == parameters_sha256,
            row.computed_at.is_not(None),
        )
    )
    rows: list[tuple[Any, ...]] = []
    for first in range(0, len(submission_ids), BATCH_SIZE):
        some = submission_ids[first : first + BATCH_SIZE]
        rows += map(tuple, session.execute(statement.where(Evaluation.submission_id.in_(some))))
    rows.sort(key=lambda values: values[:2])
    return [SubmissionValue(*values[2:]) for values in rows]


def of_evaluations(session: Session, evaluation_ids: Sequence[str]) -> Sequence[MetricResult]:
    """Return every metric of several evaluations."""
    return session.scalars(select(MetricResult).where(MetricResult.evaluation_id.in_(evaluation_ids))).all()


def compared(
    session: Session, competition_id: str, visibility: str, submission_ids: Sequence[str]
) -> list[ComparedRow]:
    """Return submissions of a competition that have a score that counts on a split, with it."""
    table = score_table(visibility)
    statement = (
        select(
            Submission, table.evaluation_id, table.final_score, table.interval_low, table.interval_high, table.epsilon
        )
        .join(table, table.submission_id == Submission.id)
        .join(Evaluation, Evaluation.id == table.evaluation_id)
        .where(
            Submission.competition_id == competition_id,
            Submission.id.in_(submission_ids),
            Evaluation.is_current.is_(True),
        )
        .options(joinedload(Submission.team), joinedload(Submission.competition))
    )
    return [ComparedRow(*row) for row in session.execute(statement)]


def newest_scored(
    session: Session, competition_id: str, visibility: str, *, team_id: str | None
) -> Sequence[Submission]:
    """Return submissions with a score that counts on a split, the newest first. team_id: whose, or None for all."""
    table = score_table(visibility)
    statement = (
        select(Submission)
        .join(table, table.submission_id == Submission.id)
        .join(Evaluation, Evaluation.id == table.evaluation_id)
        .where(Submission.competition_id == competition_id, Evaluation.is_current.is_(True))
        .options(joinedload(Submission.team))
        .order_by(Submission.received_at.desc(), Submission.id)
        .limit(MAX_CANDIDATES)
    )
    return session.scalars(statement if team_id is None else statement.where(Submission.team_id == team_id)).all()
