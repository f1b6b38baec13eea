"""Queries about one submission for its organisers: its evaluation on a split, its attempts, outputs and logs."""

from collections.abc import Sequence
from typing import cast

from sqlalchemy import func, select
from sqlalchemy.orm import Session, contains_eager, joinedload, undefer

from lethe.competition.visibility import Visibility
from server.models.competition import Split
from server.models.evaluation import (
    Evaluation,
    PrivateScore,
    PublicScore,
    RunLog,
    Shard,
    ShardAttempt,
    ShardKind,
    score_table,
)
from server.models.submission import Submission

MAX_LOGS = 100


def current_evaluation(
    session: Session, submission_id: str, visibility: Visibility
) -> tuple[Evaluation, PublicScore | PrivateScore | None] | None:
    """Return the evaluation that counts on one split, with the split, and its score with replicates and epsilons."""
    table = score_table(visibility)
    row = session.execute(
        select(Evaluation, table)
        .join(Split, Split.id == Evaluation.split_id)
        .outerjoin(table, table.evaluation_id == Evaluation.id)
        .where(
            Evaluation.submission_id == submission_id,
            Evaluation.is_current.is_(True),
            Split.visibility == visibility.value,
        )
        .options(contains_eager(Evaluation.split), undefer(table.replicates), undefer(table.epsilon))
        .limit(1)
    ).first()
    return cast("tuple[Evaluation, PublicScore | PrivateScore | None]", tuple(row)) if row else None


def submission(session: Session, competition_id: str, submission_id: str) -> Submission | None:
    """Return a submission to the competition with its competition, team and sender."""
    wanted = Submission.id == submission_id, Submission.competition_id == competition_id
    related = joinedload(Submission.competition), joinedload(Submission.team), joinedload(Submission.account)
    return session.scalar(select(Submission).where(*wanted).options(*related))


def scored_of_team(
    session: Session, team_id: str, visibility: Visibility, *, limit: int
) -> Sequence[tuple[str, str, float]]:
    """Return id, note (or name of the file) and score of a team's newest submissions with a score that counts."""
    table = score_table(visibility)
    rows = session.execute(
        select(
            Submission.id, func.coalesce(func.nullif(Submission.message, ""), Submission.filename), table.final_score
        )
        .join(table, table.submission_id == Submission.id)
        .join(Evaluation, Evaluation.id == table.evaluation_id)
        .where(Submission.team_id == team_id, Evaluation.is_current.is_(True))
        .order_by(Submission.received_at.desc(), Submission.id)
        .limit(limit)
    )
    return rows.all()


def attempts(session: Session, evaluation_id: str) -> Sequence[tuple[ShardAttempt, Shard]]:
    rows = session.execute(
        select(ShardAttempt, Shard)
        .join(Shard, Shard.id == ShardAttempt.shard_id)
        .where(Shard.evaluation_id == evaluation_id)
        .order_by(ShardAttempt.started_at, ShardAttempt.id)
    )
    return rows.all()


def shards_with_results(session: Session, evaluation_id: str) -> Sequence[Shard]:
    return session.scalars(
        select(Shard)
        .where(Shard.evaluation_id == evaluation_id, Shard.kind == ShardKind.RUNS.value, Shard.result_key.is_not(None))
        .order_by(Shard.first_run)
    ).all()


def list_logs(session: Session, submission: Submission) -> Sequence[RunLog]:
    """Return what the first hundred runs printed, those on hidden data included: for organisers only."""
    return session.scalars(
        select(RunLog)
        .join(Evaluation, Evaluation.id == RunLog.evaluation_id)
        .where(Evaluation.submission_id == submission.id)
        .order_by(RunLog.run, RunLog.id)
        .limit(MAX_LOGS)
    ).all()
