"""Queries about benchmarks, their cells and their submissions."""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from server.models.competition import Benchmark, Competition, Split, Team
from server.models.evaluation import Evaluation, MetricResult, PublicScore
from server.models.submission import Submission

PUBLIC = Visibility.PUBLIC.value


def by_slug(session: Session, slug: str) -> Benchmark | None:
    return session.scalar(select(Benchmark).where(Benchmark.slug == slug))


def locked(session: Session, benchmark_id: str) -> Benchmark:
    """Return the benchmark, refreshed, its row locked until the transaction ends."""
    return session.get_one(Benchmark, benchmark_id, with_for_update=True, populate_existing=True)


def everything(session: Session) -> Sequence[Benchmark]:
    return session.scalars(select(Benchmark).order_by(Benchmark.created_at.desc())).all()


def submitting(session: Session, at: datetime) -> Sequence[Benchmark]:
    """Return the benchmarks that may have something left to submit, the oldest first."""
    in_time = or_(Benchmark.submits_until.is_(None), Benchmark.submits_until > at)
    statement = select(Benchmark).where(Benchmark.complete_at.is_(None), in_time)
    return session.scalars(statement.order_by(Benchmark.created_at, Benchmark.id)).all()


def cell_competition(session: Session, key: str) -> Competition | None:
    """Return the competition of the cell with this key, refreshed."""
    statement = select(Competition).where(Competition.cell_key == key)
    return session.scalar(statement.execution_options(populate_existing=True))


def competitions(session: Session, ids: Collection[str]) -> dict[str, Competition]:
    return {row.id: row for row in session.scalars(select(Competition).where(Competition.id.in_(ids)))}


def splits(session: Session, competition_ids: Collection[str]) -> dict[str, Split]:
    """Return the one split of each cell, by the competition's id."""
    statement = select(Split).where(Split.competition_id.in_(competition_ids), Split.visibility == PUBLIC)
    return {split.competition_id: split for split in session.scalars(statement)}


def submissions(
    session: Session, competition_ids: Collection[str], hashes: Collection[str]
) -> dict[tuple[str, str], Submission]:
    """Return the submission of each method to each cell, by the competition's id and the file's hash."""
    statement = (
        select(Submission)
        .join(Team, Team.id == Submission.team_id)
        .where(Submission.competition_id.in_(competition_ids), Submission.content_sha256.in_(hashes))
        .where(Team.is_baseline.is_(True))
        .order_by(Submission.received_at, Submission.id)
    )
    return {(row.competition_id, row.content_sha256): row for row in session.scalars(statement)}


def evaluations(session: Session, submission_ids: Collection[str]) -> dict[str, Evaluation]:
    """Return the evaluation that counts of each submission, by the submission's id."""
    statement = select(Evaluation).where(Evaluation.submission_id.in_(submission_ids), Evaluation.is_current.is_(True))
    return {row.submission_id: row for row in session.scalars(statement)}


def scores(session: Session, evaluation_ids: Collection[str]) -> dict[str, PublicScore]:
    """Return the scores by the evaluation's id, with the epsilon of each forget example."""
    statement = select(PublicScore, PublicScore.epsilon).where(PublicScore.evaluation_id.in_(evaluation_ids))
    return {score.evaluation_id: score for score, _ in session.execute(statement)}


def metric_results(session: Session, evaluation_ids: Collection[str]) -> dict[str, list[MetricResult]]:
    """Return the metrics of evaluations, by the evaluation's id."""
    statement = select(MetricResult).where(MetricResult.evaluation_id.in_(evaluation_ids)).order_by(MetricResult.id)
    by_evaluation: dict[str, list[MetricResult]] = {}
    for row in session.scalars(statement):
        by_evaluation.setdefault(row.evaluation_id, []).append(row)
    return by_evaluation
