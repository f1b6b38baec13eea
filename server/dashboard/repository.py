"""Queries behind the organisers' dashboard. Each takes a fixed number of statements, whatever the number of rows."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server.dashboard.shown_work import FailureCount, Running, Waiting
from server.evaluations.queue_repository import in_state
from server.models.competition import Competition, Split, Team
from server.models.evaluation import Evaluation, Shard, ShardAttempt, ShardState
from server.models.submission import ENDED, Stage, Submission
from server.models.worker import Worker, WorkerToken

MOST = 50
MOST_ATTEMPTS = 2000  # that a pace is estimated from


def waiting(session: Session, competition_ids: Sequence[str]) -> list[Waiting]:
    """Return the queue by team, the longest waiting first."""
    oldest = func.min(Shard.queued_at)
    rows = session.execute(
        select(Competition.slug, Team.name, func.count(), func.sum(Shard.n_runs), oldest)
        .join(Competition, Competition.id == Shard.competition_id)
        .join(Team, Team.id == Shard.team_id)
        .where(in_state(ShardState.QUEUED), Shard.competition_id.in_(competition_ids))
        .group_by(Competition.slug, Team.id, Team.name)
        .order_by(oldest)
        .limit(MOST)
    )
    return [Waiting(*row) for row in rows]


def queued_runs(session: Session, competition_ids: Sequence[str]) -> int:
    """Return how many runs wait or are being done."""
    left = func.coalesce(func.sum(Shard.n_runs - Shard.runs_done), 0)
    chosen = Shard.competition_id.in_(competition_ids)
    return sum(  # one after the other: each state has its own index
        int(session.scalars(select(left).where(in_state(state), chosen)).one())
        for state in (ShardState.QUEUED, ShardState.LEASED)
    )


def running(session: Session, competition_ids: Sequence[str]) -> list[Running]:
    """Return the shards that workers hold, by worker."""
    rows = session.execute(
        select(
            Shard.worker,
            Competition.slug,
            Team.name,
            Evaluation.submission_id,
            Shard.first_run,
            Shard.n_runs,
            Shard.runs_done,
            Shard.attempt,
            Shard.lease_expires_at,
        )
        .join(Evaluation, Evaluation.id == Shard.evaluation_id)
        .join(Competition, Competition.id == Shard.competition_id)
        .join(Team, Team.id == Shard.team_id)
        .where(in_state(ShardState.LEASED), Shard.competition_id.in_(competition_ids))
        .order_by(Shard.worker, Shard.id)
        .limit(MOST)
    )
    return [Running(*row) for row in rows]


def workers(session: Session, *, seen_after: datetime) -> Sequence[Worker]:
    return session.scalars(select(Worker).where(Worker.seen_at > seen_after).order_by(Worker.name).limit(MOST)).all()


def finished_shards(
    session: Session, competition_ids: Sequence[str], *, since: datetime
) -> Sequence[tuple[datetime | None, int]]:
    """Return when shards were done, and how many runs each had."""
    rows = session.execute(
        select(ShardAttempt.ended_at, Shard.n_runs)
        .join(Shard, Shard.id == ShardAttempt.shard_id)
        .where(ShardAttempt.outcome == "done", ShardAttempt.ended_at > since, Shard.competition_id.in_(competition_ids))
    )
    return rows.all()


def failures(session: Session, competition_ids: Sequence[str], *, since: datetime) -> list[FailureCount]:
    """Return the failures by class, fault and competition, the most frequent first."""
    newest, count = func.max(Submission.finished_at), func.count()
    rows = session.execute(
        select(
            Submission.error_class,
            Submission.fault,
            count,
            newest,
            Competition.slug,
            func.count(Submission.team_id.distinct()),
        )
        .join(Competition, Competition.id == Submission.competition_id)
        .where(
            Submission.stage == Stage.FAILED.value,
            Submission.finished_at > since,
            Submission.competition_id.in_(competition_ids),
        )
        .group_by(Submission.error_class, Submission.fault, Competition.slug)
        .order_by(count.desc())
    )
    return [FailureCount(*row) for row in rows]


def first_attempts(
    session: Session, competition_ids: Sequence[str], *, since: datetime
) -> Sequence[tuple[datetime, datetime, datetime | None, int]]:
    """Return when shards were queued, begun and done that were done lately at the first attempt, and their runs."""
    rows = session.execute(
        select(Shard.queued_at, ShardAttempt.started_at, ShardAttempt.ended_at, Shard.n_runs)
        .join(Shard, Shard.id == ShardAttempt.shard_id)
        .where(
            ShardAttempt.outcome == "done",
            ShardAttempt.ended_at > since,
            ShardAttempt.attempt == 1,
            Shard.competition_id.in_(competition_ids),
        )
        .order_by(ShardAttempt.ended_at.desc())
        .limit(MOST_ATTEMPTS)
    )
    return rows.all()


def scored_by_team(session: Session, competition_ids: Sequence[str]) -> Sequence[tuple[str, int]]:
    """Return competition id and number of scored submissions of every team that has some."""
    rows = session.execute(
        select(Submission.competition_id, func.count())
        .where(Submission.stage == Stage.SCORED.value, Submission.competition_id.in_(competition_ids))
        .group_by(Submission.competition_id, Submission.team_id)
    )
    return rows.all()


def failure_times(
    session: Session, competition_ids: Sequence[str], *, since: datetime
) -> Sequence[tuple[datetime | None, str | None]]:
    """Return when each failed submission ended, and by whose fault."""
    rows = session.execute(
        select(Submission.finished_at, Submission.fault).where(
            Submission.stage == Stage.FAILED.value,
            Submission.finished_at > since,
            Submission.competition_id.in_(competition_ids),
        )
    )
    return rows.all()


def quarantined_tokens(session: Session, competition_ids: Sequence[str]) -> list[tuple[str, WorkerToken]]:
    """Return (slug, token) of the worker tokens that are quarantined and not revoked."""
    rows = session.execute(
        select(Competition.slug, WorkerToken)
        .join(WorkerToken, WorkerToken.competition_id == Competition.id)
        .where(
            WorkerToken.competition_id.in_(competition_ids),
            WorkerToken.quarantined_at.is_not(None),
            WorkerToken.revoked_at.is_(None),
        )
        .order_by(WorkerToken.quarantined_at)
    )
    return [(slug, token) for slug, token in rows]


def splits(session: Session, competition_ids: Sequence[str]) -> Sequence[tuple[str, Split]]:
    rows = session.execute(
        select(Competition.slug, Split)
        .join(Competition, Competition.id == Split.competition_id)
        .where(Split.competition_id.in_(competition_ids), Split.is_current)
        .order_by(Competition.slug, Split.visibility.desc())
    )
    return rows.all()


def count_stages(session: Session, competition: Competition) -> dict[str, int]:
    """Return how many submissions of a competition are at each stage."""
    rows = session.execute(
        select(Submission.stage, func.count())
        .where(Submission.competition_id == competition.id)
        .group_by(Submission.stage)
    )
    return dict(rows.all())


def unfinished(session: Session, competition_ids: Sequence[str]) -> int:
    open_stages = [stage.value for stage in Stage if stage.value not in ENDED]
    return session.scalars(
        select(func.count()).where(Submission.competition_id.in_(competition_ids), Submission.stage.in_(open_stages))
    ).one()


def count_teams(session: Session, competition: Competition) -> int:
    """Return how many teams take part; the organisers' baselines are none."""
    counted = select(func.count()).where(Team.competition_id == competition.id, Team.is_baseline.is_(False))
    return session.scalars(counted).one()
