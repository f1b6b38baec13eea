"""Why a submission waits, and about how long."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from pydantic import Field
from sqlalchemy import String, cast, func, select
from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from server.db import clock
from server.evaluations import repository
from server.models.evaluation import Evaluation, Shard, ShardAttempt, ShardKind, ShardState
from server.models.submission import ENDED, Submission
from server.models.worker import Worker, WorkerState

PACE_OF = timedelta(minutes=15)
SEEN_WITHIN = timedelta(minutes=5)
NO_WORKER = "no worker for it has been seen in the last five minutes"
IN_QUEUE = "other submissions are served first"
OWN_FIRST = "an earlier submission of your team is served first"
NEXT = "next in the queue"


@dataclass(frozen=True)
class Wait:
    """Why nothing of a submission runs yet. seconds: by the pace of the last minutes."""

    reason: Annotated[str, Field(examples=["other submissions are served first"])]
    ahead: Annotated[int, Field(description="submissions that are served before it, about")]
    seconds: Annotated[float | None, Field(description="until it begins, about; null where nothing tells")]


def find_wait(session: Session, submission: Submission) -> Wait | None:
    """Return why nothing of the submission runs; None once a run of it has begun, or while it is not in the queue."""
    shard = _first_shard(session, submission)
    if shard is None:
        return None
    ahead, runs, own = repository.queued_before(session, shard)
    pace = _runs_per_s(session, shard.split_id)
    seconds = runs / pace if pace else None
    if not _has_worker(session, shard):
        return Wait(NO_WORKER, ahead, None)
    reason = OWN_FIRST if own else IN_QUEUE if ahead else NEXT
    return Wait(reason, ahead, seconds)


def _first_shard(session: Session, submission: Submission) -> Shard | None:
    if submission.stage in ENDED:
        return None
    evaluations = repository.get_evaluations(session, [submission.id], visibility=Visibility.PUBLIC.value)
    current = next((evaluation for evaluation in evaluations if evaluation.is_current), None)
    shards = repository.get_shards(session, [current.id]) if current else []
    if any(shard.state != ShardState.QUEUED.value for shard in shards if shard.kind == ShardKind.RUNS.value):
        return None
    queued = [shard for shard in shards if shard.state == ShardState.QUEUED.value]
    return min(queued, key=lambda shard: (shard.turn, shard.id), default=None)


def _runs_per_s(session: Session, split_id: str) -> float:
    done = (
        select(func.sum(Shard.n_runs))
        .join(ShardAttempt, ShardAttempt.shard_id == Shard.id)
        .where(
            ShardAttempt.outcome == "done",
            ShardAttempt.ended_at > clock(session) - PACE_OF,
            Shard.split_id == split_id,
        )
    )
    return (session.scalar(done) or 0) / PACE_OF.total_seconds()


def _has_worker(session: Session, shard: Shard) -> bool:
    """Return whether a worker that the split does not refuse was heard of, or holds a shard of it."""
    alive = Worker.seen_at > clock(session) - SEEN_WITHIN, Worker.state != WorkerState.STOPPED.value
    fits = cast(Worker.refusals, String).not_like(f'%"{shard.split_id}"%')
    held = select(Evaluation.id).join(Shard, Shard.evaluation_id == Evaluation.id)
    holds = held.where(Shard.split_id == shard.split_id, Shard.state == ShardState.LEASED.value)
    return bool(session.scalar(select(select(Worker.name).where(*alive, fits).exists() | holds.exists())))
