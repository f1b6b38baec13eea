"""Queries behind the boards: the best score of every team, and how often it entered."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Select, and_, func, select
from sqlalchemy.orm import Session

from server.leaderboard.ladder import Try
from server.models.competition import Team, Visibility
from server.models.evaluation import Evaluation, PrivateScore, PublicScore
from server.models.submission import Submission

ScoreTable = type[PublicScore] | type[PrivateScore]
TABLES: dict[Visibility, ScoreTable] = {Visibility.PUBLIC: PublicScore, Visibility.PRIVATE: PrivateScore}


@dataclass(frozen=True)
class Best:
    """The best submission of one team on one split."""

    submission_id: str
    score: float
    received_at: datetime
    interval_low: float | None
    interval_high: float | None
    tied_group: int | None
    mode: str


@dataclass(frozen=True)
class Activity:
    """How often a team entered, and when last. What was refunded does not count."""

    entries: int
    last_entry_at: datetime


def best_scores(session: Session, competition_id: str, visibility: Visibility) -> dict[str, Best]:
    """Return each team's best score, by team id, of the evaluations that count now.

    On the private split only finals count; what is disqualified is left out on both.
    """
    best = _placed_scores(TABLES[visibility], competition_id).subquery()
    rows = session.execute(
        select(
            best.c.team_id,
            best.c.submission_id,
            best.c.final_score,
            best.c.received_at,
            best.c.interval_low,
            best.c.interval_high,
            best.c.tied_group,
            best.c.mode,
        ).where(best.c.place == 1)
    )
    return {row.team_id: Best(*row[1:]) for row in rows}


def activity(session: Session, competition_id: str) -> dict[str, Activity]:
    """Return how often each team entered, by team id."""
    rows = session.execute(
        select(Submission.team_id, func.count(), func.max(Submission.received_at))
        .where(Submission.competition_id == competition_id, Submission.refunded.is_(False))
        .group_by(Submission.team_id)
    )
    return {team_id: Activity(entries, last) for team_id, entries, last in rows}


def teams(session: Session, competition_id: str) -> Sequence[tuple[str, str, bool, bool]]:
    """Return id, name, whether a baseline, whether disqualified, of every team."""
    rows = session.execute(
        select(Team.id, Team.name, Team.is_baseline, Team.disqualified_at.is_not(None)).where(
            Team.competition_id == competition_id
        )
    )
    return rows.all()


def tries(session: Session, competition_id: str, *, team_ids: Sequence[str] | None = None) -> dict[str, list[Try]]:
    """Return the publicly scored submissions of each team in the order of receipt, by team id."""
    statement = (
        select(Submission.team_id, Submission.id, Submission.received_at, PublicScore.final_score)
        .join(PublicScore, PublicScore.submission_id == Submission.id)
        .join(Evaluation, Evaluation.id == PublicScore.evaluation_id)
        .where(_counts(competition_id))
        .order_by(Submission.received_at, Submission.id)
    )
    if team_ids is not None:
        statement = statement.where(Submission.team_id.in_(team_ids))
    found: dict[str, list[Try]] = {}
    for team_id, submission_id, received_at, score in session.execute(statement):
        found.setdefault(team_id, []).append(Try(submission_id, received_at, score))
    return found


def best_over_time(
    session: Session, competition_id: str, team_ids: Sequence[str]
) -> Sequence[tuple[str, datetime, float]]:
    """Return team id, moment, public score of every scored submission of these teams, oldest first."""
    rows = session.execute(
        select(Submission.team_id, Submission.received_at, PublicScore.final_score)
        .join(PublicScore, PublicScore.submission_id == Submission.id)
        .join(Evaluation, Evaluation.id == PublicScore.evaluation_id)
        .where(_counts(competition_id), Submission.team_id.in_(team_ids))
        .order_by(Submission.received_at, Submission.id)
    )
    return rows.all()


def _placed_scores(table: ScoreTable, competition_id: str) -> Select[tuple[str, str, datetime, float]]:
    """Select every score with its place within its team: better first, then earlier."""
    place = func.row_number().over(
        partition_by=Submission.team_id,
        order_by=(table.final_score.desc(), Submission.received_at, Submission.id),
    )
    return (
        select(
            Submission.team_id,
            Submission.id.label("submission_id"),
            Submission.received_at,
            table.final_score,
            table.interval_low,
            table.interval_high,
            table.tied_group,
            func.coalesce(Submission.entry_point["mode"].as_string(), "function").label("mode"),
            place.label("place"),
        )
        .join(table, table.submission_id == Submission.id)
        .join(Evaluation, Evaluation.id == table.evaluation_id)
        .where(_counts(competition_id), *_finals_only(table))
    )


def _finals_only(table: ScoreTable) -> tuple[ColumnElement[bool], ...]:
    """On the private split only the chosen count, and of these not what the organiser excluded."""
    if table is PublicScore:
        return ()
    return (Submission.selected.is_(True), Submission.excluded_at.is_(None))


def _counts(competition_id: str) -> ColumnElement[bool]:
    return and_(
        Submission.competition_id == competition_id,
        Submission.disqualified_at.is_(None),
        Evaluation.is_current.is_(True),
    )
