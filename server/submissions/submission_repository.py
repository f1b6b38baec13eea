"""Queries about submissions and their public scores. Private scores are not reachable from here."""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import Select, delete, func, or_, select, tuple_
from sqlalchemy.orm import Session, aliased, defer, joinedload

from lethe.competition.visibility import Visibility
from server.disclosure.gate import score_order
from server.models.competition import Competition, CompetitionState, Membership, Split, Team
from server.models.evaluation import Evaluation, PublicScore, RunLog, Shard, ShardKind, ShardState
from server.models.submission import ENDED, Stage, Submission
from server.submissions.list_filter import Show


def published(session: Session, competition_id: str, *, on_boards: Collection[str]) -> Sequence[Submission]:
    """Return what stands on boards (ids) or may be published, the earliest first, of parts the whole."""
    parent_submission_ids = select(Submission.parent_id).where(
        Submission.id.in_(on_boards), Submission.parent_id.is_not(None)
    )
    agreed = Submission.publish_code.is_(True) & (Submission.stage == Stage.SCORED)
    statement = (
        select(Submission)
        .join(Team, Team.id == Submission.team_id)
        .where(Submission.competition_id == competition_id)
        .where(Submission.disqualified_at.is_(None), Team.disqualified_at.is_(None))
        .where(or_(Submission.id.in_(on_boards), Submission.id.in_(parent_submission_ids), agreed))
        .options(joinedload(Submission.competition), joinedload(Submission.team), joinedload(Submission.account))
    )
    return session.scalars(statement.order_by(Submission.received_at, Submission.id)).all()


def others_not_archived(session: Session, competition_id: str) -> Sequence[Competition]:
    """Return all competitions but this one, tasks included; cells of benchmarks, which never open, are none."""
    others = Competition.id != competition_id, func.coalesce(Competition.parent_id, "") != competition_id
    statement = select(Competition).where(*others, Competition.cell_key.is_(None))
    return session.scalars(statement.where(Competition.state != CompetitionState.ARCHIVED.value)).all()


def count_taken_back(session: Session, team_id: str, *, since: datetime, before: datetime) -> int:
    """Return how many submissions of the team, received in [since, before), it cancelled before they counted."""
    mine = Submission.team_id == team_id, Submission.received_at >= since, Submission.received_at < before
    cancelled = Submission.parent_id.is_(None), Submission.stage == Stage.CANCELLED, Submission.refunded.is_(True)
    return session.scalar(select(func.count()).where(*mine, *cancelled)) or 0


def baseline_messages(session: Session, competition_id: str) -> frozenset[str]:
    """Return the messages of what the competition's reference lines have submitted."""
    statement = select(Submission.message).join(Team, Team.id == Submission.team_id)
    return frozenset(
        session.scalars(statement.where(Submission.competition_id == competition_id, Team.is_baseline.is_(True)))
    )


def forget_baselines(session: Session, competition_id: str) -> None:
    """Delete what a competition's reference lines have submitted, with scores and teams: they are submitted again."""
    teams = select(Team.id).where(Team.competition_id == competition_id, Team.is_baseline.is_(True))
    submissions = select(Submission.id).where(Submission.team_id.in_(teams))
    session.execute(delete(Evaluation).where(Evaluation.submission_id.in_(submissions)))
    session.execute(delete(Submission).where(Submission.team_id.in_(teams)))
    session.execute(delete(Team).where(Team.id.in_(teams)))
    session.expire_all()


def by_id(session: Session, submission_id: str) -> Submission | None:
    whole = joinedload(Submission.competition), joinedload(Submission.team), joinedload(Submission.account)
    return session.scalar(select(Submission).options(*whole).where(Submission.id == submission_id))


def locked(session: Session, submission_id: str) -> Submission:
    return session.get_one(Submission, submission_id, with_for_update=True, populate_existing=True)


def is_member(session: Session, *, team_id: str, account_id: str) -> bool:
    return session.get(Membership, (team_id, account_id)) is not None


def of_team(session: Session, team_id: str, *, competition_id: str) -> Sequence[Submission]:
    """Return a team's submissions to a competition or to one task, the newest first."""
    return session.scalars(
        _of_team(team_id, competition_id).order_by(Submission.received_at.desc(), Submission.id)
    ).all()


def unfinished_of_account(session: Session, account_id: str, *, limit: int) -> Sequence[Submission]:
    """Return what of the account's teams has not ended, the newest first."""
    open_stages = [stage.value for stage in Stage if stage.value not in ENDED]
    # The teams' ids by themselves: a planner that does not know how few they are reads every open submission.
    mine = session.scalars(select(Membership.team_id).where(Membership.account_id == account_id)).all()
    statement = (
        select(Submission)
        .options(joinedload(Submission.competition), joinedload(Submission.team), joinedload(Submission.account))
        .where(Submission.team_id.in_(mine), Submission.stage.in_(open_stages), Submission.parent_id.is_(None))
    )
    return session.scalars(statement.order_by(Submission.received_at.desc(), Submission.id).limit(limit)).all()


def page_of_team(
    session: Session,
    team_id: str,
    *,
    competition_id: str,
    show: Show,
    final_ids: Collection[str],
    offset: int,
    limit: int,
) -> Sequence[Submission]:
    """Return some lines of a list of a team's submissions. final_ids: those that `Show.FINALS` stands for."""
    order = [Submission.received_at.desc(), Submission.id]
    statement = _of_team(team_id, competition_id)
    if show is Show.BEST:
        statement = (
            statement.join(PublicScore, PublicScore.submission_id == Submission.id)
            .join(Evaluation, Evaluation.id == PublicScore.evaluation_id)
            .where(Evaluation.is_current.is_(True))
        )
        order = [score_order(PublicScore.final_score).desc(), Submission.received_at, Submission.id]
    elif show is Show.FINALS:
        statement = statement.where(Submission.id.in_(final_ids))
    elif show is Show.FAILED:
        statement = statement.where(Submission.stage == Stage.FAILED)
    return session.scalars(statement.order_by(*order).offset(offset).limit(limit)).all()


def public_scores(session: Session, submission_ids: Sequence[str]) -> dict[str, PublicScore]:
    """Return the public score that counts now, by submission id; the unscored have no entry."""
    statement = (
        select(PublicScore)
        .join(Evaluation, Evaluation.id == PublicScore.evaluation_id)
        .join(Split, Split.id == Evaluation.split_id)
        .where(PublicScore.submission_id.in_(submission_ids), Evaluation.is_current.is_(True))
        .where(Split.visibility == Visibility.PUBLIC.value)
    )
    return {score.submission_id: score for score in session.scalars(statement)}


def score_before(session: Session, submission: Submission) -> PublicScore | None:
    """Return the public score that counts of what the team sent last before the submission, of what has one."""
    earlier = Submission.received_at < submission.received_at
    mine = Submission.team_id == submission.team_id, Submission.competition_id == submission.competition_id
    return session.scalar(_newest_score(submission.id).where(*mine, earlier))


def like_score(session: Session, submission: Submission, other_id: str) -> PublicScore | None:
    """Return the public score that counts of another submission, where it was made like this one's."""
    return session.scalar(_newest_score(submission.id).where(Submission.id == other_id))


def _newest_score(compared_id: str) -> Select[PublicScore]:
    """Return the newest of those scores that were made like the compared one: of as many models, by the same scorer."""
    score, evaluation = aliased(PublicScore), aliased(Evaluation)
    like = (
        select(evaluation.n_runs, score.scorer_version)
        .join(evaluation, evaluation.id == score.evaluation_id)
        .where(score.submission_id == compared_id, evaluation.is_current.is_(True))
    )
    statement = (
        select(PublicScore)
        .join(Submission, Submission.id == PublicScore.submission_id)
        .join(Evaluation, Evaluation.id == PublicScore.evaluation_id)
        .where(Evaluation.is_current.is_(True), Submission.disqualified_at.is_(None))
        .where(tuple_(Evaluation.n_runs, PublicScore.scorer_version).in_(like))
    )
    return statement.order_by(Submission.received_at.desc(), Submission.id).limit(1)


def public_sample_logs(session: Session, submission_id: str) -> Sequence[RunLog]:
    """Return what runs on the public sample printed; never what a run on hidden data did."""
    statement = (
        select(RunLog)
        .join(Evaluation, Evaluation.id == RunLog.evaluation_id)
        .where(Evaluation.submission_id == submission_id, RunLog.on_public_sample.is_(True))
    )
    return session.scalars(statement.order_by(RunLog.id)).all()


def public_sample_result(session: Session, submission_id: str) -> tuple[str, str] | None:
    """Return key and SHA-256 of what the last run on the public sample that went well gave; None if it gave nothing."""
    statement = (
        select(Shard.result_key, Shard.result_sha256)
        .join(Evaluation, Evaluation.id == Shard.evaluation_id)
        .where(Evaluation.submission_id == submission_id, Shard.kind == ShardKind.SMOKE.value)
        .where(Shard.state == ShardState.DONE.value)
    )
    key, sha256 = session.execute(statement.order_by(Shard.id.desc()).limit(1)).one_or_none() or (None, None)
    return (key, sha256) if key and sha256 else None


def _of_team(team_id: str, competition_id: str) -> Select[Submission]:
    """Return the query of a team's submissions to a competition or task, without the competition's file."""
    competition = joinedload(Submission.competition).options(defer(Competition.config), defer(Competition.source))
    whole = competition, joinedload(Submission.team), joinedload(Submission.account)
    mine = Submission.team_id == team_id, Submission.competition_id == competition_id
    return select(Submission).options(*whole).where(*mine)
