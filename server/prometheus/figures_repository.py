"""SQL of the figures that are read from the database at each scrape. Each query reads a small index."""

import math
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server import last_times
from server.db import clock
from server.evaluations.queue_repository import in_state, queue_age
from server.evaluations.unserved import find_unserved
from server.last_times import Upkeep
from server.models.competition import Split, SplitState
from server.models.evaluation import Evaluation, EvaluationState, Shard, ShardAttempt, ShardState
from server.models.notification import Delivery, DeliveryState, QueuedEmail
from server.models.worker import Worker, WorkerState
from server.workers.registration import SERVES_OTHERS

RETURN_WINDOW = timedelta(minutes=15)
MAX_COUNTED = 10_000  # a longer queue is told by its age


@dataclass(frozen=True)
class Figures:
    """What an instance does now."""

    queue_age_s: float = 0.0
    queued: int = 0
    leased: int = 0
    waiting_by_device: dict[str, int] = field(default_factory=dict)
    unscored: int = 0
    workers: dict[tuple[str, str], int] = field(default_factory=dict)  # (device, state)
    refused_splits: int = 0
    unserved: int = 0
    given_back: int = 0
    failed_preparations: int = 0
    overdue_s: dict[str, float] = field(default_factory=dict)  # mail, webhook
    upkeep_age_s: dict[str, float] = field(default_factory=dict)  # infinite: never done


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
        refused_splits=sum(why != SERVES_OTHERS for worker in workers for why in worker.refusals.values()),
        unserved=sum(each.shards for each in find_unserved(session)),
        given_back=session.scalars(
            select(func.count())
            .select_from(ShardAttempt)
            .where(ShardAttempt.outcome == "given-back", ShardAttempt.ended_at > at - RETURN_WINDOW)
        ).one(),
        failed_preparations=session.scalars(
            select(func.count()).select_from(Split).where(Split.state == SplitState.FAILED.value)
        ).one(),
        overdue_s={"mail": _overdue_s(session, QueuedEmail, at), "webhook": _overdue_s(session, Delivery, at)},
        upkeep_age_s={what.value: math.inf for what in Upkeep} | last_times.ages_s(session),
    )


def _overdue_s(session: Session, table: type[QueuedEmail | Delivery], at: datetime) -> float:
    """Return how long the oldest message that is still to be sent has waited."""
    oldest = session.scalar(select(func.min(table.created_at)).where(table.state == DeliveryState.WAITING.value))
    return max(0.0, (at - oldest).total_seconds()) if oldest else 0.0


def _waiting_by_device(session: Session) -> dict[str, int]:
    some = select(Shard.split_id).where(in_state(ShardState.QUEUED)).limit(MAX_COUNTED).subquery()
    rows = session.execute(
        select(func.coalesce(Split.device, "any"), func.count())
        .join(some, some.c.split_id == Split.id)
        .group_by(Split.device)
    )
    return {row[0]: row[1] for row in rows}
