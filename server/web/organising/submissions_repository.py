"""Queries of the organisers' list of submissions, of its filters, and of the audit log."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from sqlalchemy import ColumnElement, false, func, or_, select
from sqlalchemy.orm import Session, aliased, contains_eager, joinedload, load_only, undefer

from server.models.account import Account
from server.models.audit import AuditEvent
from server.models.competition import Split, Team, Visibility
from server.models.evaluation import Evaluation, PrivateScore, PublicScore, RunLog, Shard, ShardAttempt
from server.models.submission import Submission

LINES = 100
SHORTEST_HASH = 8
SHOWN = (  # of a submission on a line: a hundred of them with every column take twice as long to read
    Submission.id,
    Submission.message,
    Submission.filename,
    Submission.stage,
    Submission.error_class,
    Submission.disqualified_at,
    Submission.selected,
    Submission.received_at,
)


@dataclass(frozen=True)
class Filters:
    """What the list is narrowed to. Empty means any.

    only: selected, disqualified, refunded, flagged, or repeated (a file that was sent more than once).
    text: an id, the beginning of a file's SHA-256, or part of a note, a file's name or the sender's name.
    """

    stage: str = ""
    fault: str = ""
    error_class: str = ""
    team: str = ""
    only: str = ""
    text: str = ""
    received_from: datetime | None = None
    received_before: datetime | None = None


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
        .options(load_only(*SHOWN, raiseload=True))
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


def current_evaluation(
    session: Session, submission_id: str, visibility: Visibility
) -> tuple[Evaluation, PublicScore | PrivateScore | None] | None:
    """Return the evaluation that counts on one split, with the split, and its score with replicates and epsilons."""
    table = _table(visibility)
    found = session.execute(
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
    return cast("tuple[Evaluation, PublicScore | PrivateScore | None]", tuple(found)) if found else None


def submission(session: Session, competition_id: str, submission_id: str) -> Submission | None:
    """Return a submission of the competition with its team."""
    wanted = Submission.id == submission_id, Submission.competition_id == competition_id
    return session.scalar(select(Submission).where(*wanted).options(joinedload(Submission.team)))


def scored_of_team(
    session: Session, team_id: str, visibility: Visibility, *, most: int
) -> Sequence[tuple[str, str, float]]:
    """Return id, note (or name of the file) and score of a team's newest submissions with a score that counts."""
    table = _table(visibility)
    rows = session.execute(
        select(
            Submission.id, func.coalesce(func.nullif(Submission.message, ""), Submission.filename), table.final_score
        )
        .join(table, table.submission_id == Submission.id)
        .join(Evaluation, Evaluation.id == table.evaluation_id)
        .where(Submission.team_id == team_id, Evaluation.is_current.is_(True))
        .order_by(Submission.received_at.desc(), Submission.id)
        .limit(most)
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


def _table(visibility: Visibility) -> type[PublicScore] | type[PrivateScore]:
    return PublicScore if visibility is Visibility.PUBLIC else PrivateScore


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
    if filters.only in CONDITIONS:
        found.append(CONDITIONS[filters.only]())
    if filters.text:
        found.append(_holds(filters.text))
    if filters.received_from:
        found.append(Submission.received_at >= filters.received_from)
    if filters.received_before:
        found.append(Submission.received_at < filters.received_before)
    return found


def _holds(text: str) -> ColumnElement[bool]:
    same_file = Submission.content_sha256.startswith(text.lower(), autoescape=True)
    return or_(
        Submission.id == text,
        same_file if len(text) >= SHORTEST_HASH else false(),
        *(
            func.lower(column).contains(text.lower(), autoescape=True)
            for column in (Submission.message, Submission.filename, Account.name)
        ),
    )


def _flagged() -> ColumnElement[bool]:
    flags = PublicScore.details["flags"]
    signs = or_(*(flags[name].as_boolean() for name in ("deterministic", "copied", "leaked")))
    return select(PublicScore.evaluation_id).where(PublicScore.submission_id == Submission.id, signs).exists()


def _repeated() -> ColumnElement[bool]:
    other = aliased(Submission)
    same = other.content_sha256 == Submission.content_sha256, other.competition_id == Submission.competition_id
    return select(other.id).where(*same, other.id != Submission.id).exists()


CONDITIONS: dict[str, Callable[[], ColumnElement[bool]]] = {
    "selected": lambda: Submission.selected.is_(True),
    "disqualified": lambda: Submission.disqualified_at.is_not(None),
    "refunded": lambda: Submission.refunded.is_(True),
    "flagged": _flagged,
    "repeated": _repeated,
}
