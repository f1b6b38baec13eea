"""Queries about questions to organisers."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Select, func, or_, select
from sqlalchemy.orm import Session, joinedload

from server.models.competition import Competition
from server.models.question import Question


def by_id(session: Session, question_id: str) -> Question | None:
    statement = select(Question).options(joinedload(Question.account)).where(Question.id == question_id)
    return session.scalar(statement)


def shown(session: Session, competition_id: str, *, account_id: str | None) -> Sequence[Question]:
    """Return what is answered to all, and what the account asked itself, the newest first."""
    public: ColumnElement[bool] = Question.is_public.is_(True) & Question.answered_at.is_not(None)
    seen = public if account_id is None else or_(public, Question.account_id == account_id)
    return session.scalars(_newest(competition_id).where(seen)).all()


def page(session: Session, competition_id: str, *, only_open: bool, offset: int, limit: int) -> Sequence[Question]:
    """Return some of all questions, the newest first."""
    statement = _newest(competition_id).options(joinedload(Question.account))
    if only_open:
        statement = statement.where(Question.answered_at.is_(None))
    return session.scalars(statement.offset(offset).limit(limit)).all()


def count_open(session: Session, competition: Competition, *, account_id: str | None = None) -> int:
    """Return how many have no answer; account_id: of those that this person asked."""
    waiting = select(func.count()).where(Question.competition_id == competition.id, Question.answered_at.is_(None))
    if account_id is not None:
        waiting = waiting.where(Question.account_id == account_id)
    return session.scalar(waiting) or 0


def _newest(competition_id: str) -> Select[Question]:
    mine = select(Question).where(Question.competition_id == competition_id)
    return mine.order_by(Question.created_at.desc(), Question.id)
