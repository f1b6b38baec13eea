"""Queries of the organisers' list of submissions, and the conditions of its filter."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVarTuple

from sqlalchemy import ColumnElement, Select, and_, false, func, or_, select, true
from sqlalchemy.orm import Session, aliased, contains_eager, joinedload, load_only

from server.accounts.look_alikes import look_alike_key
from server.models.account import Account
from server.models.competition import Competition, Team
from server.models.evaluation import Evaluation, PrivateScore, PublicScore, ScoreTable
from server.models.submission import Stage, Submission
from server.scoring.scores import ScoreDoubt
from server.submissions.list_filter import SubmissionFilter

Columns = TypeVarTuple("Columns")
MIN_HASH_LENGTH = 8
MIN_ID_LENGTH = 4
MAX_SAME_FILES = 20
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
class ListedScore:
    """A public score that counts."""

    value: float
    is_unconfirmed: bool
    doubt: ScoreDoubt | None


@dataclass(frozen=True)
class ListedSubmission:
    """A submission (columns SHOWN) on a line, with score, failures by task, confirmation and doubt."""

    submission: Submission
    team: str
    author: str
    score: float | None
    failures: Mapping[str, str] = field(default_factory=dict)
    is_unconfirmed: bool = False
    doubt: ScoreDoubt | None = None
    same_file_of: Sequence[str] = ()  # the names of other teams that sent the same file


def listed(
    session: Session, competition_id: str, wanted: SubmissionFilter, *, offset: int, limit: int
) -> list[ListedSubmission]:
    """Return some submissions, the newest first; their public scores are looked up in a second step."""
    rows = session.execute(
        _matching(select(Submission, Team.name, Account.name), competition_id, wanted)
        .options(load_only(*SHOWN, raiseload=True))
        .offset(offset)
        .limit(limit)
    ).all()
    ids = [submission.id for submission, _, _ in rows]
    scores, senders = public_scores(session, ids), same_file_teams(session, ids)
    return [
        replace(_line(submission, team, author, scores.get(submission.id)), same_file_of=senders.get(submission.id, ()))
        for submission, team, author in rows
    ]


def same_file_teams(session: Session, submission_ids: Sequence[str]) -> dict[str, list[str]]:
    """Return the names of the other teams that sent the same file to the same competition, by submission id."""
    other = aliased(Submission)
    same = (
        other.content_sha256 == Submission.content_sha256,
        other.competition_id == Submission.competition_id,
        other.team_id != Submission.team_id,
    )
    rows = session.execute(
        select(Submission.id, Team.name)
        .join(other, and_(*same))
        .join(Team, Team.id == other.team_id)
        .where(Submission.id.in_(submission_ids))
        .distinct()
        .order_by(Submission.id, Team.name)
    )
    teams: dict[str, list[str]] = {}
    for submission_id, team in rows:
        teams.setdefault(submission_id, []).append(team)
    return teams


def same_files(session: Session, competition_id: str) -> list[list[str]]:
    """Return the names of the teams that sent the same file to a competition, for each such file, some of them."""
    mine = Submission.competition_id == competition_id
    several = (
        select(Submission.content_sha256)
        .where(mine)
        .group_by(Submission.content_sha256)
        .having(func.count(Submission.team_id.distinct()) > 1)
        .order_by(func.min(Submission.received_at))
        .limit(MAX_SAME_FILES)
    )
    rows = session.execute(
        select(Submission.content_sha256, Team.name)
        .join(Team, Team.id == Submission.team_id)
        .where(mine, Submission.content_sha256.in_(several))
        .distinct()
        .order_by(Submission.content_sha256, Team.name)
    )
    teams: dict[str, list[str]] = {}
    for sha256, team in rows:
        teams.setdefault(sha256, []).append(team)
    return list(teams.values())


def _line(submission: Submission, team: str, author: str, score: ListedScore | None) -> ListedSubmission:
    if score is None:
        return ListedSubmission(submission, team, author, None)
    return ListedSubmission(
        submission, team, author, score.value, is_unconfirmed=score.is_unconfirmed, doubt=score.doubt
    )


def complete(
    session: Session, competition_id: str, wanted: SubmissionFilter, *, offset: int, limit: int | None
) -> Sequence[Submission]:
    """Return some submissions with everything that a `SubmissionView` needs, the newest first."""
    related = (joinedload(Submission.competition), contains_eager(Submission.team), contains_eager(Submission.account))
    statement = _matching(select(Submission), competition_id, wanted).options(*related)
    return session.scalars(statement.offset(offset).limit(limit)).all()


def public_scores(session: Session, submission_ids: Sequence[str]) -> dict[str, ListedScore]:
    """Return the public scores that count, by submission id."""
    rows = session.execute(
        select(PublicScore.submission_id, PublicScore.final_score, PublicScore.is_unconfirmed, PublicScore.details)
        .join(Evaluation, Evaluation.id == PublicScore.evaluation_id)
        .where(PublicScore.submission_id.in_(submission_ids), Evaluation.is_current.is_(True))
    )
    return {
        submission_id: ListedScore(value, is_unconfirmed, ScoreDoubt.read(details))
        for submission_id, value, is_unconfirmed, details in rows
    }


def _matching(statement: Select[*Columns], competition_id: str, wanted: SubmissionFilter) -> Select[*Columns]:
    return (
        statement.join(Team, Team.id == Submission.team_id)
        .join(Account, Account.id == Submission.account_id)
        .where(_sent_to(competition_id), *_conditions(wanted))
        .order_by(Submission.received_at.desc(), Submission.id)
    )


def _sent_to(competition_id: str) -> ColumnElement[bool]:
    """Return the condition of what was sent to a competition, or to a task of it alone, as baselines are."""
    tasks = select(Competition.id).where(Competition.parent_id == competition_id)
    to_a_task = Submission.competition_id.in_(tasks) & Submission.parent_id.is_(None)
    return or_(Submission.competition_id == competition_id, to_a_task)


def _ended_so(wanted: SubmissionFilter) -> ColumnElement[bool]:
    """Return the condition of what is at a stage or failed in a way, itself or, of failures, in one of its tasks."""
    names = ("stage", "fault", "error_class")
    given = {name: value for name in names if (value := getattr(wanted, name))}
    own = and_(true(), *(getattr(Submission, name) == value for name, value in given.items()))
    if not (wanted.stage == Stage.FAILED or wanted.fault or wanted.error_class):
        return own
    part = aliased(Submission)
    of_part = [getattr(part, name) == value for name, value in given.items()]
    return or_(own, select(part.id).where(part.parent_id == Submission.id, *of_part).exists())


def _conditions(wanted: SubmissionFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = [_ended_so(wanted)]
    if wanted.team:
        conditions.append(Team.name_key.contains(look_alike_key(wanted.team), autoescape=True))
    if wanted.only in CONDITIONS:
        conditions.append(CONDITIONS[wanted.only]())
    if wanted.text:
        conditions.append(_holds(wanted.text))
    if wanted.received_from:
        conditions.append(Submission.received_at >= wanted.received_from)
    if wanted.received_before:
        conditions.append(Submission.received_at < wanted.received_before)
    return conditions


def _holds(text: str) -> ColumnElement[bool]:
    same_file = Submission.content_sha256.startswith(text.lower(), autoescape=True)
    return or_(
        Submission.id.startswith(text.lower(), autoescape=True) if len(text) >= MIN_ID_LENGTH else false(),
        same_file if len(text) >= MIN_HASH_LENGTH else false(),
        *(
            func.lower(column).contains(text.lower(), autoescape=True)
            for column in (Submission.message, Submission.filename, Account.name)
        ),
    )


def _flagged() -> ColumnElement[bool]:
    flags = PublicScore.details["flags"]
    # The last two are of scores from before version 0.3.
    signs = or_(*(flags[name].as_boolean() for name in ("suspect", "copied", "leaked")))
    return _has_score(PublicScore, signs)


def _unconfirmed() -> ColumnElement[bool]:
    """Either score. Before the close there are no private ones."""
    return or_(*(_has_score(table, table.is_unconfirmed.is_(True)) for table in (PublicScore, PrivateScore)))


def _has_score(table: ScoreTable, condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """Whether the submission, or its part in a task, has such a score that counts."""
    part = aliased(Submission)
    parts = select(part.id).where(part.parent_id == Submission.id)
    own = or_(table.submission_id == Submission.id, table.submission_id.in_(parts))
    scores = select(table.evaluation_id).join(Evaluation, Evaluation.id == table.evaluation_id)
    return scores.where(own, Evaluation.is_current.is_(True), condition).exists()


def _repeated() -> ColumnElement[bool]:
    other = aliased(Submission)
    same = other.content_sha256 == Submission.content_sha256, other.competition_id == Submission.competition_id
    return select(other.id).where(*same, other.id != Submission.id).exists()


CONDITIONS: dict[str, Callable[[], ColumnElement[bool]]] = {
    "selected": lambda: Submission.selected.is_(True),
    "disqualified": lambda: Submission.disqualified_at.is_not(None),
    "refunded": lambda: Submission.refunded.is_(True),
    "flagged": _flagged,
    "unconfirmed": _unconfirmed,
    "repeated": _repeated,
}
