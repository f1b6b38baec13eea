"""Queries about what is re-scored on the private split."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session, joinedload

from lethe.competition.visibility import Visibility
from server.disclosure.gate import score_order
from server.models.competition import Team
from server.models.evaluation import Evaluation, PrivateScore, PublicScore, Shard, ShardKind, score_table
from server.models.submission import ENDED, Submission


@dataclass(frozen=True)
class Candidate:
    """A submission with a public score that may become one of its team's finals."""

    team_id: str
    submission_id: str
    score: float
    received_at: datetime
    selected: bool


def unfinished(session: Session, competition_id: str) -> int:
    """Return how many submissions that count have neither a public score nor a named failure yet."""
    counts = Submission.competition_id == competition_id, Submission.is_official.is_(True)
    waiting = *counts, Submission.stage.not_in(ENDED)
    return session.scalar(select(func.count()).select_from(Submission).where(*waiting)) or 0


def candidates(session: Session, competition_id: str, *, team_id: str | None = None) -> Sequence[Candidate]:
    """Return what may be a final: better scores first within a team, then the earlier."""
    statement = (
        select(Submission.team_id, Submission.id, PublicScore.final_score, Submission.received_at, Submission.selected)
        .join(PublicScore, PublicScore.submission_id == Submission.id)
        .join(Evaluation, Evaluation.id == PublicScore.evaluation_id)
        .join(Team, Team.id == Submission.team_id)
        .where(
            Submission.competition_id == competition_id,
            Submission.is_official.is_(True),
            Submission.disqualified_at.is_(None),
            Submission.excluded_at.is_(None),
            Team.disqualified_at.is_(None),
            Evaluation.is_current.is_(True),
        )
        .order_by(
            Submission.team_id, score_order(PublicScore.final_score).desc(), Submission.received_at, Submission.id
        )
    )
    if team_id is not None:
        statement = statement.where(Submission.team_id == team_id)
    return [Candidate(*row) for row in session.execute(statement)]


def selected(session: Session, team_id: str, *, competition_id: str) -> Sequence[Submission]:
    """Return what a team chose itself of its submissions to a competition or to one task, the earliest first."""
    mine = Submission.team_id == team_id, Submission.competition_id == competition_id
    chosen = select(Submission).where(*mine, Submission.selected.is_(True))
    return session.scalars(chosen.order_by(Submission.received_at, Submission.id)).all()


def last_extension(session: Session, competition_id: str) -> datetime | None:
    """Return the latest extended deadline of a team; None if there is none."""
    counts = Team.disqualified_at.is_(None), Team.merged_into_id.is_(None)
    return session.scalar(select(func.max(Team.extended_until)).where(Team.competition_id == competition_id, *counts))


def parent_submission_ids(session: Session, submission_ids: Collection[str]) -> list[str]:
    """Return the ids of the submissions that these are parts of, the earliest first."""
    parents = select(Submission.parent_id).where(Submission.id.in_(submission_ids))
    whole = select(Submission.id).where(Submission.id.in_(parents))
    return list(session.scalars(whole.order_by(Submission.received_at, Submission.id)))


def mark(session: Session, competition_id: str, chosen: Collection[str]) -> None:
    """Make exactly these submissions the selected ones of the competition."""
    everything = update(Submission).where(Submission.competition_id == competition_id)
    session.execute(everything.values(selected=Submission.id.in_(chosen)))


def finals(session: Session, competition_id: str) -> Sequence[Submission]:
    """Return the submissions that the private board is made of."""
    statement = (
        select(Submission)
        .options(joinedload(Submission.team))
        .join(Team, Team.id == Submission.team_id)
        .where(
            Submission.competition_id == competition_id,
            Submission.selected.is_(True),
            Submission.excluded_at.is_(None),
            Submission.disqualified_at.is_(None),
            Team.disqualified_at.is_(None),
        )
    )
    return session.scalars(statement.order_by(Submission.received_at, Submission.id)).all()


def current_evaluations(session: Session, submission_ids: Sequence[str], split_id: str) -> dict[str, Evaluation]:
    """Return the evaluation that counts on this split, by submission id."""
    statement = select(Evaluation).where(
        Evaluation.submission_id.in_(submission_ids), Evaluation.split_id == split_id, Evaluation.is_current.is_(True)
    )
    return {evaluation.submission_id: evaluation for evaluation in session.scalars(statement)}


def private_scores(session: Session, submission_ids: Sequence[str]) -> dict[str, PrivateScore]:
    """Return the private score that counts, by submission id. Only for what is revealed, and for organisers."""
    statement = (
        select(PrivateScore)
        .join(Evaluation, Evaluation.id == PrivateScore.evaluation_id)
        .where(PrivateScore.submission_id.in_(submission_ids), Evaluation.is_current.is_(True))
    )
    return {score.submission_id: score for score in session.scalars(statement)}


def count_unconfirmed(session: Session, competition_id: str, visibility: Visibility) -> int:
    """Return how many scores on a split would be on its board, and take no rank until an organiser confirms them."""
    table = score_table(visibility)
    finals = (Submission.selected.is_(True), Submission.excluded_at.is_(None)) if table is PrivateScore else ()
    statement = (
        select(func.count())
        .select_from(table)
        .join(Evaluation, Evaluation.id == table.evaluation_id)
        .join(Submission, Submission.id == table.submission_id)
        .join(Team, Team.id == Submission.team_id)
        .where(
            Submission.competition_id == competition_id,
            Submission.disqualified_at.is_(None),
            Team.disqualified_at.is_(None),
            Evaluation.is_current.is_(True),
            table.is_unconfirmed.is_(True),
            *finals,
        )
    )
    return session.scalar(statement) or 0


def runs_done(session: Session, evaluation_ids: Sequence[str]) -> int:
    done = select(func.coalesce(func.sum(Shard.runs_done), 0)).where(
        Shard.evaluation_id.in_(evaluation_ids), Shard.kind == ShardKind.RUNS.value
    )
    return int(session.scalar(done) or 0)
