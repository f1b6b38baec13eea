"""SQL of the figures that are read from the database at each scrape. Each query reads a small index."""

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server.db import clock
from server.evaluations.queue_repository import in_state, queue_age
from server.models.competition import Split
from server.models.evaluation import Evaluation, EvaluationState, Shard, ShardState
from server.models.worker import Worker, WorkerState

COUNTED_TO = 10_000  # a longer queue is told by its age


@dataclass(frozen=True)
class Figures:
    """What an instance does now."""

    queue_age_s: float
    queued: int
    leased: int
    waiting_by_device: dict[str, int]
    unscored: int
    workers: dict[tuple[str, str], int]  # (device, state)
    refused_splits: int


def figures(session: Session, *, workers_seen_within_s: float) -> Figures:
    """Return the figures as of now."""
    at = clock(session)
    age = queue_age(session, at)
    seen = select(Worker).where(
        Worker.seen_at > at - timedelta(seconds=workers_seen_within_s), Worker.state != WorkerState.STOPPED
    )
    workers = session.scalars(seen).all()
    counts: dict[tuple[str, str], int] = {}
    for worker in workers:
        counts[worker.device, worker.state] = counts.get((worker.device, worker.state), 0) + 1
    waiting = _waiting_by_device(session)
    return Figures(
        queue_age_s=age.total_seconds() if age else 0.0,
        queued=sum(waiting.values()),
        leased=session.scalars(select(func.count()).select_from(Shard).where(in_state(ShardState.LEASED))).one(),
        waiting_by_device=waiting,
        unscored=session.scalars(
            select(func.count()).select_from(Evaluation).where(Evaluation.state == EvaluationState.SCORING.value)
        ).one(),
        workers=counts,
        refused_splits=sum(len(worker.refusals) for worker in workers),
    )


def _waiting_by_device(session: Session) -> dict[str, int]:
    some = select(Shard.split_id).where(in_state(ShardState.QUEUED)).limit(COUNTED_TO).subquery()
    rows = session.execute(
        select(func.coalesce(Split.device, "any"), func.count())
        .join(some, some.c.split_id == Split.id)
        .group_by(Split.device)
    )
    return {row[0]: row[1] for row in rows}
