"""Queries behind the boards: the best score of every team, how often it entered, and the best of each
competition."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Executable, Select, String, and_, case, cast, func, null, select
from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from server.disclosure.gate import score_order
from server.leaderboard.ranking import Entry, RowKind, Try
from server.models.competition import Split, Team
from server.models.evaluation import Evaluation, PrivateScore, PublicScore, ScoreTable, score_table
from server.models.submission import Submission

BATCH_SIZE = 500  # rows that are read while other threads wait


def entries(
    session: Session,
    competition_id: str,
    visibility: Visibility,
    *,
    n_models: int,
    with_intervals: bool,
    phase: str = "",
) -> list[Entry]:
    """Return each team that has a score: its best one of the evaluations that count now, and how often it entered.

    On the private split only finals count; what is disqualified is left out on both. What was refunded is not an entry.
    n_models: N of the board; a score of another number of runs is not compared with its scores. phase: of whose
    submissions alone the board is; empty for the official one.
    """
    table = score_table(visibility)
    rows = _rows(
        session, _standings(table, competition_id, n_models=n_models, with_intervals=with_intervals, phase=phase)
    )
    return [
        Entry(
            team_id, team, RowKind(kind), score, its_id, _moment(at), low, high, tied, n, last and _moment(last), mode
        )
        for team_id, team, kind, score, its_id, at, low, high, tied, n, last, mode in rows
    ]


def activity(session: Session, competition_id: str, *, phase: str) -> dict[str, tuple[int, datetime]]:
    """Return how often each team entered, and when last, by its id. What was refunded is not an entry."""
    return {team_id: (count, last) for team_id, count, last in session.execute(_activity(competition_id, phase))}


def replicates(session: Session, visibility: Visibility, submission_ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Return what was stored for paired tests with the score that counts, by submission id."""
    table = score_table(visibility)
    statement = (
        select(table.submission_id, table.replicates)
        .join(Evaluation, Evaluation.id == table.evaluation_id)
        .where(table.submission_id.in_(submission_ids), Evaluation.is_current.is_(True))
    )
    return {submission_id: values for submission_id, values in session.execute(statement) if values is not None}


def tries(
    session: Session, competition_id: str, *, n_models: int, team_ids: Sequence[str] | None = None, phase: str = ""
) -> dict[str, list[Try]]:
    """Return the publicly scored submissions of each team in the order of receipt, by team id."""
    statement = (
        select(
            Submission.team_id,
            Submission.id,
            cast(Submission.received_at, String),
            PublicScore.final_score,
            _mode(),
            PublicScore.is_unconfirmed,
        )
        .join(PublicScore, PublicScore.submission_id == Submission.id)
        .join(Evaluation, Evaluation.id == PublicScore.evaluation_id)
        .where(_counts(competition_id, n_models, phase))
        .order_by(Submission.received_at, Submission.id)
    )
    if team_ids is not None:
        statement = statement.where(Submission.team_id.in_(team_ids))
    by_team: dict[str, list[Try]] = {}
    for team_id, submission_id, received_at, *attempt in _rows(session, statement):
        by_team.setdefault(team_id, []).append(Try(submission_id, _moment(received_at), *attempt))
    return by_team


def best_over_time(
    session: Session, competition_id: str, team_ids: Sequence[str], *, n_models: int
) -> Sequence[tuple[str, datetime, float]]:
    """Return team id, moment, public score of every scored submission of these teams, oldest first."""
    rows = session.execute(
        select(Submission.team_id, Submission.received_at, PublicScore.final_score)
        .join(PublicScore, PublicScore.submission_id == Submission.id)
        .join(Evaluation, Evaluation.id == PublicScore.evaluation_id)
        .where(_counts(competition_id, n_models, ""), Submission.team_id.in_(team_ids))
        .order_by(Submission.received_at, Submission.id)
    )
    return rows.all()


def _rows(session: Session, statement: Executable) -> Iterator[Any]:
    """Yield the rows of a statement that has thousands, past the ORM: that doubles what a row costs."""
    session.flush()
    for portion in session.connection().execute(statement).partitions(BATCH_SIZE):
        yield from portion


def _moment(written: str) -> datetime:
    """Read a moment as a database writes it. The drivers' own reading takes five times as long."""
    moment = datetime.fromisoformat(written)
    if moment.tzinfo is UTC:
        return moment
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _standings(
    table: ScoreTable, competition_id: str, *, n_models: int, with_intervals: bool, phase: str
) -> Executable:
    """Select each team with its best score and its activity; moments as they are written."""
    best = _placed_scores(table, competition_id, n_models, phase).subquery()
    active = _activity(competition_id, phase).subquery()
    kind = case(
        (Team.disqualified_at.is_not(None), RowKind.DISQUALIFIED.value),
        (Team.is_baseline, RowKind.BASELINE.value),
        (best.c.is_unconfirmed, RowKind.UNCONFIRMED.value),
        else_=RowKind.TEAM.value,
    )
    interval = (best.c.interval_low, best.c.interval_high) if with_intervals else (null(), null())
    return (
        select(
            Team.id,
            Team.name,
            kind,
            best.c.final_score,
            best.c.submission_id,
            cast(best.c.received_at, String),
            *interval,
            best.c.tied_group,
            func.coalesce(active.c.entries, 0),
            cast(active.c.last_entry_at, String),
            best.c.mode,
        )
        .join(best, best.c.team_id == Team.id)
        .outerjoin(active, active.c.team_id == Team.id)
        .where(best.c.place == 1)
        .order_by(score_order(best.c.final_score).desc(), best.c.received_at)  # nearly the ranking: that is then quick
    )


def _activity(competition_id: str, phase: str) -> Select[str, int, datetime]:
    """Select how often each team entered, and when last."""
    return (
        select(
            Submission.team_id, func.count().label("entries"), func.max(Submission.received_at).label("last_entry_at")
        )
        .where(Submission.competition_id == competition_id, _of_board(phase), Submission.refunded.is_(False))
        .group_by(Submission.team_id)
    )


def _placed_scores(
    table: ScoreTable, competition_id: str, n_models: int, phase: str
) -> Select[tuple[str, str, datetime, float]]:
    """Select every score with its place within its team: better first, then earlier."""
    order = score_order(table.final_score) if table is PublicScore else table.final_score
    place = func.row_number().over(
        partition_by=Submission.team_id, order_by=(order.desc(), Submission.received_at, Submission.id)
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
            table.is_unconfirmed,
            _mode().label("mode"),
            place.label("place"),
        )
        .join(table, table.submission_id == Submission.id)
        .join(Evaluation, Evaluation.id == table.evaluation_id)
        .where(_counts(competition_id, n_models, phase), *_finals_only(table))
    )


def _mode() -> ColumnElement[str]:
    return func.coalesce(Submission.entry_point["mode"].as_string(), "function")


def _finals_only(table: ScoreTable) -> tuple[ColumnElement[bool], ...]:
    """On the private split only the chosen count, and of these not what the organiser excluded."""
    if table is PublicScore:
        return ()
    return (Submission.selected.is_(True), Submission.excluded_at.is_(None))


def _of_board(phase: str) -> ColumnElement[bool]:
    """Only what is official on the official board, only what belongs to the phase on a phase's own."""
    return Submission.phase == phase if phase else Submission.is_official.is_(True)


def _counts(competition_id: str, n_models: int, phase: str) -> ColumnElement[bool]:
    return and_(
        Submission.competition_id == competition_id,
        _of_board(phase),
        Submission.disqualified_at.is_(None),
        Evaluation.is_current.is_(True),
        Evaluation.n_runs == n_models,
    )


def best_scores(session: Session, visibility: Visibility) -> Sequence[tuple[str, int, float]]:
    """Return competition id, number of ranked teams and best score, of all competitions with scores."""
    table = score_table(visibility)
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
