"""Queries behind the organisers' dashboard. Each takes a fixed number of statements, whatever the number of rows.

evaluated_ids: what is evaluated of the competitions shown, their tasks or themselves (`competitions.evaluated`); rows
name the competition and the task.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import TypeVarTuple

from sqlalchemy import Select, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from server.dashboard.shown_work import FailureCount, Running, Waiting
from server.evaluations.queue_repository import in_state
from server.models.competition import Competition, Split, Team
from server.models.evaluation import Evaluation, Shard, ShardAttempt, ShardState
from server.models.submission import ENDED, Stage, Submission
from server.models.worker import Worker, WorkerToken

Columns = TypeVarTuple("Columns")
MAX_ROWS = 50
MAX_ATTEMPTS = 2000  # that a pace is estimated from
_Named = aliased(Competition)  # the competition that is shown: of a task the one that it belongs to
_TASK = func.coalesce(Competition.task_name, "")


def waiting(session: Session, evaluated_ids: Sequence[str]) -> list[Waiting]:
    """Return the queue by team, the longest waiting first."""
    oldest = func.min(Shard.queued_at)
    rows = session.execute(
        _with_names(
            select(_Named.slug, _TASK, Team.name, func.count(), func.sum(Shard.n_runs), oldest), Shard.competition_id
        )
        .join(Team, Team.id == Shard.team_id)
        .where(in_state(ShardState.QUEUED), Shard.competition_id.in_(evaluated_ids))
        .group_by(_Named.slug, _TASK, Team.id, Team.name)
        .order_by(oldest)
        .limit(MAX_ROWS)
    )
    return [Waiting(*row) for row in rows]


def queued_runs(session: Session, evaluated_ids: Sequence[str]) -> int:
    """Return how many runs wait or are being done."""
    left = func.coalesce(func.sum(Shard.n_runs - Shard.runs_done), 0)
    chosen = Shard.competition_id.in_(evaluated_ids)
    return sum(  # one after the other: each state has its own index
        int(session.scalars(select(left).where(in_state(state), chosen)).one())
        for state in (ShardState.QUEUED, ShardState.LEASED)
    )


def running(session: Session, evaluated_ids: Sequence[str]) -> list[Running]:
    """Return the shards that workers hold, by worker."""
    rows = session.execute(
        _with_names(
            select(
                Shard.worker,
                _Named.slug,
                _TASK,
                Team.name,
                Evaluation.submission_id,
                Shard.first_run,
                Shard.n_runs,
                Shard.runs_done,
                Shard.attempt,
                Shard.lease_expires_at,
            ),
            Shard.competition_id,
        )
        .join(Evaluation, Evaluation.id == Shard.evaluation_id)
        .join(Team, Team.id == Shard.team_id)
        .where(in_state(ShardState.LEASED), Shard.competition_id.in_(evaluated_ids))
        .order_by(Shard.worker, Shard.id)
        .limit(MAX_ROWS)
    )
    return [Running(*row) for row in map(tuple, rows)]


def workers(session: Session, *, seen_after: datetime) -> Sequence[Worker]:
    return session.scalars(
        select(Worker).where(Worker.seen_at > seen_after).order_by(Worker.name).limit(MAX_ROWS)
    ).all()


def finished_shards(
    session: Session, evaluated_ids: Sequence[str], *, since: datetime
) -> Sequence[tuple[datetime | None, int]]:
    """Return when shards were done, and how many runs each had."""
    rows = session.execute(
        select(ShardAttempt.ended_at, Shard.n_runs)
        .join(Shard, Shard.id == ShardAttempt.shard_id)
        .where(ShardAttempt.outcome == "done", ShardAttempt.ended_at > since, Shard.competition_id.in_(evaluated_ids))
    )
    return rows.all()


def failures(session: Session, evaluated_ids: Sequence[str], *, since: datetime) -> list[FailureCount]:
    """Return the failures by class, fault and competition, the most frequent first."""
    newest, count = func.max(Submission.finished_at), func.count()
    rows = session.execute(
        _with_names(
            select(
                Submission.error_class,
                Submission.fault,
                count,
                newest,
                _Named.slug,
                _TASK,
                func.count(Submission.team_id.distinct()),
            ),
            Submission.competition_id,
        )
        .where(
            Submission.stage == Stage.FAILED,
            Submission.finished_at > since,
            Submission.competition_id.in_(evaluated_ids),
        )
        .group_by(Submission.error_class, Submission.fault, _Named.slug, _TASK)
        .order_by(count.desc())
    )
    return [FailureCount(*row) for row in rows]


def first_attempts(
    session: Session, evaluated_ids: Sequence[str], *, since: datetime
) -> Sequence[tuple[datetime, datetime, datetime | None, int]]:
    """Return when shards were queued, begun and done that were done lately at the first attempt, and their runs."""
    rows = session.execute(
        select(Shard.queued_at, ShardAttempt.started_at, ShardAttempt.ended_at, Shard.n_runs)
        .join(Shard, Shard.id == ShardAttempt.shard_id)
        .where(
            ShardAttempt.outcome == "done",
            ShardAttempt.ended_at > since,
            ShardAttempt.attempt == 1,
            Shard.competition_id.in_(evaluated_ids),
        )
        .order_by(ShardAttempt.ended_at.desc())
        .limit(MAX_ATTEMPTS)
    )
    return rows.all()


def scored_by_team(session: Session, evaluated_ids: Sequence[str]) -> Sequence[tuple[str, int]]:
    """Return the id of what was evaluated and the number of scored submissions of every team that has some."""
    rows = session.execute(
        select(Submission.competition_id, func.count())
        .where(Submission.stage == Stage.SCORED, Submission.competition_id.in_(evaluated_ids))
        .group_by(Submission.competition_id, Submission.team_id)
    )
    return rows.all()


def failure_times(
    session: Session, evaluated_ids: Sequence[str], *, since: datetime
) -> Sequence[tuple[datetime | None, str | None]]:
    """Return when each failed submission ended, and by whose fault."""
    rows = session.execute(
        select(Submission.finished_at, Submission.fault).where(
            Submission.stage == Stage.FAILED,
            Submission.finished_at > since,
            Submission.competition_id.in_(evaluated_ids),
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


def splits(session: Session, evaluated_ids: Sequence[str]) -> Sequence[tuple[str, str, Competition, Split]]:
    """Return the current splits: name of the competition and of the task, what the split is of, the split."""
    rows = session.execute(
        _with_names(select(_Named.slug, _TASK, Competition, Split), Split.competition_id)
        .where(Split.competition_id.in_(evaluated_ids), Split.is_current)
        .order_by(_Named.slug, Competition.task_place, Split.visibility.desc())
    )
    return rows.all()


def _with_names(statement: Select[*Columns], competition_id: InstrumentedAttribute[str]) -> Select[*Columns]:
    joined = statement.join(Competition, Competition.id == competition_id)
    return joined.join(_Named, _Named.id == func.coalesce(Competition.parent_id, Competition.id))


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
