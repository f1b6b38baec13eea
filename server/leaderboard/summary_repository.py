"""Queries behind the list of competitions: how many teams each has, and the best of their scores."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from server.leaderboard.board_repository import TABLES
from server.models.competition import Split, Team
from server.models.evaluation import Evaluation, PrivateScore
from server.models.submission import Submission


def best_scores(session: Session, visibility: Visibility) -> Sequence[tuple[str, int, float]]:
    """Return competition id, number of ranked teams and best score, of all competitions with scores."""
    table = TABLES[visibility]
    counts = [Submission.is_official.is_(True), Submission.disqualified_at.is_(None), Evaluation.is_current.is_(True)]
    if table is PrivateScore:
        counts += [Submission.selected.is_(True), Submission.excluded_at.is_(None)]
    order = table.final_score.desc(), Submission.received_at, Submission.id
    place = func.row_number().over(partition_by=Submission.team_id, order_by=order)
    best = (
        select(Submission.competition_id, table.final_score, table.is_unconfirmed, place.label("place"))
        .join(table, table.submission_id == Submission.id)
        .join(Evaluation, Evaluation.id == table.evaluation_id)
        .join(Team, Team.id == Submission.team_id)
        .where(*counts, Team.is_baseline.is_(False), Team.disqualified_at.is_(None))
        .subquery()
    )
    rows = session.execute(
        select(best.c.competition_id, func.count(), func.max(best.c.final_score))
        .where(best.c.place == 1, best.c.is_unconfirmed.is_(False))
        .group_by(best.c.competition_id)
    )
    return rows.all()


def oracles(session: Session) -> Sequence[tuple[str, str, dict[str, Any] | None]]:
    """Return competition id, visibility and the oracle's score, as data, of every current split."""
    statement = select(Split.competition_id, Split.visibility, Split.oracle).where(Split.is_current)
    return session.execute(statement).all()
