"""Queries about re-judgings: which submissions, how far, what they would change."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from sqlalchemy import ColumnElement, Select, case, func, select, update
from sqlalchemy.orm import Session

from server.models.competition import Competition, Split
from server.models.evaluation import (
    Evaluation,
    EvaluationState,
    Rejudging,
    RejudgingState,
    Shard,
    ShardKind,
    score_table,
)
from server.models.submission import Fault, Submission
from server.rejudging.sets import Chosen, Outcome

T = TypeVar("T")
ENDED = (EvaluationState.SCORED.value, EvaluationState.FAILED.value, EvaluationState.CANCELLED.value)
Counts = dict[str, dict[str, int]]  # of a re-judging: evaluations in each state


def submissions(session: Session, competition_id: str, *, split_id: str, chosen: Chosen) -> Sequence[Submission]:
    """Return the chosen submissions that have an evaluation which counts and has ended on this split."""
    statement = select(Submission).where(*_choice(competition_id, split_id=split_id, chosen=chosen))
    return session.scalars(_with_evaluation(statement).order_by(Submission.received_at, Submission.id)).all()


def current_evaluations(
    session: Session, split_id: str, submission_ids: Sequence[str] | None = None
) -> Sequence[Evaluation]:
    """Return the evaluations that count on a split and have ended: those of some submissions, or all."""
    counts = Evaluation.is_current.is_(True), Evaluation.split_id == split_id, Evaluation.finished_at.is_not(None)
    statement = select(Evaluation).where(*counts).order_by(Evaluation.created_at, Evaluation.id)
    evaluations = session.scalars(statement).all()
    wanted = None if submission_ids is None else set(submission_ids)
    return [evaluation for evaluation in evaluations if wanted is None or evaluation.submission_id in wanted]


def ids_beginning(session: Session, competition_id: str, beginning: str) -> Sequence[str]:
    """Return at most two ids of the competition's submissions that begin so."""
    mine = Submission.competition_id == competition_id, Submission.id.startswith(beginning, autoescape=True)
    return session.scalars(select(Submission.id).where(*mine).order_by(Submission.id).limit(2)).all()


def how_many(session: Session, competition_id: str, *, split_id: str, chosen: Chosen) -> int:
    """Return how many submissions `submissions` would."""
    statement = select(func.count()).select_from(Submission)
    return session.scalars(
        _with_evaluation(statement.where(*_choice(competition_id, split_id=split_id, chosen=chosen)))
    ).one()


def _with_evaluation(statement: Select[T]) -> Select[T]:
    return statement.join(Evaluation, Evaluation.submission_id == Submission.id)


def _choice(competition_id: str, *, split_id: str, chosen: Chosen) -> Iterator[ColumnElement[bool]]:
    yield Submission.competition_id == competition_id
    yield Evaluation.finished_at.is_not(None) & Evaluation.is_current.is_(True) & (Evaluation.split_id == split_id)
    if chosen.submission_ids is not None:
        yield Submission.id.in_(chosen.submission_ids)
    if chosen.team_id is not None:
        yield Submission.team_id == chosen.team_id
    if chosen.error_class is not None:
        yield Evaluation.error_class == chosen.error_class
    if chosen.received_from is not None:
        yield Submission.received_at >= chosen.received_from
    if chosen.received_before is not None:
        yield Submission.received_at < chosen.received_before


def locked(session: Session, rejudging_id: str) -> Rejudging:
    return session.get_one(Rejudging, rejudging_id, with_for_update=True, populate_existing=True)


def of_competition(session: Session, competition: Competition) -> Sequence[Rejudging]:
    """Return the re-judgings of a competition, the newest first."""
    mine = select(Rejudging).where(Rejudging.competition_id == competition.id)
    return session.scalars(mine.order_by(Rejudging.created_at.desc(), Rejudging.id)).all()


def running(session: Session, competition_id: str, visibility: str) -> bool:
    same = Rejudging.competition_id == competition_id, Rejudging.visibility == visibility
    still = Rejudging.state == RejudgingState.RUNNING.value
    return session.scalar(select(Rejudging.id).where(*same, still).limit(1)) is not None


def evaluations(session: Session, rejudging_id: str) -> Sequence[Evaluation]:
    return session.scalars(select(Evaluation).where(Evaluation.rejudging_id == rejudging_id)).all()


def host_failed(session: Session) -> Sequence[Evaluation]:
    """Return the evaluations of running re-judgings that failed by the host's fault."""
    statement = (
        select(Evaluation)
        .join(Rejudging, Rejudging.id == Evaluation.rejudging_id)
        .where(
            Rejudging.state == RejudgingState.RUNNING.value,
            Evaluation.state == EvaluationState.FAILED.value,
            Evaluation.fault == Fault.HOST.value,
        )
    )
    return session.scalars(statement.order_by(Evaluation.created_at, Evaluation.id)).all()


def outcomes(session: Session, rejudging: Rejudging) -> list[Outcome]:
    """Return old and new of every submission of a re-judging."""
    new = _results(session, Evaluation.rejudging_id == rejudging.id, visibility=rejudging.visibility)
    ids = list(new)
    same = Split.competition_id == rejudging.competition_id, Split.visibility == rejudging.visibility
    counts = Evaluation.is_current.is_(True) & Evaluation.split_id.in_(select(Split.id).where(*same))
    old = _results(session, counts & Evaluation.submission_id.in_(ids), visibility=rejudging.visibility)
    return [
        Outcome(
            submission_id=submission_id,
            team_id=new[submission_id][0],
            old_state=old[submission_id][1],
            old_score=old[submission_id][2],
            new_state=new[submission_id][1],
            new_score=new[submission_id][2],
        )
        for submission_id in ids
    ]


def make_current(session: Session, rejudging: Rejudging) -> None:
    """Make a re-judging's evaluations, and its split, count; what the host failed at replaces nothing."""
    own, split = _replacing(rejudging), split_of(session, rejudging)
    versions = Evaluation.split_id.in_(_versions(split))
    again = Evaluation.submission_id.in_(session.scalars(select(Evaluation.submission_id).where(own)).all())
    session.execute(
        update(Evaluation)
        .where(versions, again | (Evaluation.split_id != split.id), Evaluation.is_current)
        .values(is_current=False)
    )
    session.execute(update(Evaluation).where(own).values(is_current=True))
    session.execute(update(Split).where(Split.id.in_(_versions(split)), Split.is_current).values(is_current=False))
    session.execute(update(Split).where(Split.id == split.id).values(is_current=True))


def split_of(session: Session, rejudging: Rejudging) -> Split:
    """Return the split that a re-judging is on: the current one, or the version that is to replace it."""
    own = select(Evaluation.split_id).where(Evaluation.rejudging_id == rejudging.id).limit(1)
    return session.scalars(select(Split).where(Split.id == own.scalar_subquery())).one()


def on_earlier_versions(session: Session, rejudging: Rejudging) -> Sequence[Submission]:
    """Return the submissions that count by another version of the split, and for which the re-judging has no result."""
    split = split_of(session, rejudging)
    others = Evaluation.split_id.in_(_versions(split)), Evaluation.split_id != split.id, Evaluation.is_current
    statement = select(Submission).join(Evaluation, Evaluation.submission_id == Submission.id).where(*others)
    judged = select(Evaluation.submission_id).where(_replacing(rejudging))
    return session.scalars(statement.where(Submission.id.not_in(judged)).order_by(Submission.id)).all()


def _replacing(rejudging: Rejudging) -> ColumnElement[bool]:
    """Return the condition of a re-judging's evaluations that came to an end of their own."""
    return (Evaluation.rejudging_id == rejudging.id) & Evaluation.fault.is_distinct_from(Fault.HOST.value)


def _versions(split: Split) -> Select[str]:
    same = Split.competition_id == split.competition_id, Split.visibility == split.visibility
    return select(Split.id).where(*same)


def _results(session: Session, condition: object, *, visibility: str) -> dict[str, tuple[str, str, float | None]]:
    table = score_table(visibility)
    statement = (
        select(Evaluation.submission_id, Submission.team_id, Evaluation.state, func.max(table.final_score))
        .join(Submission, Submission.id == Evaluation.submission_id)
        .outerjoin(table, table.evaluation_id == Evaluation.id)
        .where(condition)  # type: ignore[arg-type]  # any column expression
        .group_by(Evaluation.id, Evaluation.submission_id, Submission.team_id, Evaluation.state)
        .order_by(Evaluation.submission_id)
    )
    return {row[0]: (row[1], row[2], row[3]) for row in session.execute(statement)}


def evaluation_states(session: Session, rejudging_ids: Sequence[str]) -> Counts:
    """Return how many evaluations of each re-judging are in each state, by its id."""
    states: Counts = {}
    for rejudging_id, state, count in session.execute(
        select(Evaluation.rejudging_id, Evaluation.state, func.count())
        .where(Evaluation.rejudging_id.in_(rejudging_ids))
        .group_by(Evaluation.rejudging_id, Evaluation.state)
    ):
        states.setdefault(rejudging_id, {})[state] = count
    return states


def runs(session: Session, rejudging_ids: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return runs done and to be done of each re-judging, by id; all of an ended evaluation count as done."""
    done = case((Evaluation.state.in_(ENDED), Shard.n_runs), else_=Shard.runs_done)
    rows = session.execute(
        select(Evaluation.rejudging_id, func.sum(done), func.sum(Shard.n_runs))
        .join(Shard, Shard.evaluation_id == Evaluation.id)
        .where(Evaluation.rejudging_id.in_(rejudging_ids), Shard.kind == ShardKind.RUNS.value)
        .group_by(Evaluation.rejudging_id)
    )
    return {row[0]: (int(row[1]), int(row[2])) for row in rows}
