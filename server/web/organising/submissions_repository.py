"""Queries of the organisers' list of submissions, of its filters, and of the audit log."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from server.models.account import Account
from server.models.audit import AuditEvent
from server.models.competition import Split, Team, Visibility
from server.models.evaluation import Evaluation, PublicScore, RunLog, Shard, ShardAttempt
from server.models.submission import Submission

LINES = 100


@dataclass(frozen=True)
class Filters:
    """What the list is narrowed to. Empty means any."""

    stage: str = ""
    fault: str = ""
    error_class: str = ""
    team: str = ""
    only: str = ""  # selected, disqualified, refunded


@dataclass(frozen=True)
class Line:
    submission: Submission
    team: str
    author: str
    score: float | None


def listed(session: Session, competition_id: str, filters: Filters, *, page: int) -> list[Line]:
    """Return one page of submissions, the newest first, and one line more if there is another page.

    The scores come in a second step: joined at once, every submission's would be looked up before the sorting.
    """
    rows = session.execute(
        select(Submission, Team.name, Account.name)
        .join(Team, Team.id == Submission.team_id)
        .join(Account, Account.id == Submission.account_id)
        .where(Submission.competition_id == competition_id, *_conditions(filters))
        .order_by(Submission.received_at.desc(), Submission.id)
        .offset((page - 1) * LINES)
        .limit(LINES + 1)
    ).all()
    scores = public_scores(session, [submission.id for submission, _, _ in rows])
    return [Line(submission, team, author, scores.get(submission.id)) for submission, team, author in rows]


def public_scores(session: Session, submission_ids: Sequence[str]) -> dict[str, float]:
    """Return the public scores that count, by submission id."""
    rows = session.execute(
        select(PublicScore.submission_id, PublicScore.final_score)
        .join(Evaluation, Evaluation.id == PublicScore.evaluation_id)
        .where(PublicScore.submission_id.in_(submission_ids), Evaluation.is_current.is_(True))
    )
    return dict(rows.all())


def evaluations(session: Session, submission_id: str) -> Sequence[Evaluation]:
    return session.scalars(
        select(Evaluation).where(Evaluation.submission_id == submission_id).order_by(Evaluation.created_at)
    ).all()


def public_evaluation(session: Session, submission_id: str) -> Evaluation | None:
    return session.scalar(select(Evaluation).where(_current_public(submission_id)).limit(1))


def public_score(session: Session, evaluation_id: str) -> PublicScore | None:
    return session.get(PublicScore, evaluation_id)


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
        .where(Shard.evaluation_id == evaluation_id, Shard.kind == "runs", Shard.result_key.is_not(None))
        .order_by(Shard.first_run)
    ).all()


def logs(session: Session, submission_id: str) -> Sequence[RunLog]:
    return session.scalars(
        select(RunLog)
        .join(Evaluation, Evaluation.id == RunLog.evaluation_id)
        .where(Evaluation.submission_id == submission_id)
        .order_by(RunLog.run, RunLog.id)
        .limit(LINES)
    ).all()


def audit_events(session: Session, competition_id: str, *, action: str, actor: str, page: int) -> Sequence[AuditEvent]:
    """Return one page of the log, the newest first, and one event more if there is another page."""
    statement = select(AuditEvent).where(AuditEvent.competition_id == competition_id)
    if action:
        statement = statement.where(AuditEvent.action == action)
    if actor:
        statement = statement.where(AuditEvent.actor == actor)
    newest = statement.order_by(AuditEvent.at.desc(), AuditEvent.id.desc())
    return session.scalars(newest.offset((page - 1) * LINES).limit(LINES + 1)).all()


def actions(session: Session, competition_id: str) -> Sequence[str]:
    rows = session.scalars(select(AuditEvent.action).where(AuditEvent.competition_id == competition_id).distinct())
    return sorted(rows)


def _current_public(submission_id: object) -> ColumnElement[bool]:
    public = select(Split.id).where(Split.id == Evaluation.split_id, Split.visibility == Visibility.PUBLIC.value)
    return (Evaluation.submission_id == submission_id) & Evaluation.is_current.is_(True) & public.exists()


def _conditions(filters: Filters) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if filters.stage:
        found.append(Submission.stage == filters.stage)
    if filters.fault:
        found.append(Submission.fault == filters.fault)
    if filters.error_class:
        found.append(Submission.error_class == filters.error_class)
    if filters.team:
        found.append(Team.name_key.contains(filters.team.casefold(), autoescape=True))
    if filters.only == "selected":
        found.append(Submission.selected.is_(True))
    if filters.only == "disqualified":
        found.append(Submission.disqualified_at.is_not(None))
    if filters.only == "refunded":
        found.append(Submission.refunded.is_(True))
    return found
