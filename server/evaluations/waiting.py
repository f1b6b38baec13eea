"""Why a submission waits, and about how long."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from pydantic import Field
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from server.db import clock
from server.evaluations import repository
from server.evaluations.unserved import find_unserved
from server.models.evaluation import Shard, ShardAttempt, ShardKind, ShardState
from server.models.submission import ENDED, Submission

PACE_OF = timedelta(minutes=15)
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
    """Return why nothing of the submission runs; None while something does, or while it is not in the queue.

    Once runs of it have begun, only what nobody can do counts as waiting.
    """
    shard, has_begun = _first_shard(session, submission)
    if shard is None:
        return None
    unserved = find_unserved(session, split_id=shard.split_id, trusted_only=shard.trusted_only)
    if has_begun and not unserved:
        return None
    ahead, runs, own = repository.queued_before(session, shard)
    pace = _runs_per_s(session, shard.split_id)
    seconds = runs / pace if pace else None
    if unserved:
        return Wait(unserved[0].reason, ahead, None)
    reason = OWN_FIRST if own else IN_QUEUE if ahead else NEXT
    return Wait(reason, ahead, seconds)


def _first_shard(session: Session, submission: Submission) -> tuple[Shard | None, bool]:
    """Return the shard that is served next, None while one is served; and whether a run has begun."""
    if submission.stage in ENDED:
        return None, False
    evaluations = repository.get_evaluations(session, [submission.id], visibility=Visibility.PUBLIC.value)
    current = next((evaluation for evaluation in evaluations if evaluation.is_current), None)
    shards = repository.get_shards(session, [current.id]) if current else []
    if any(shard.state == ShardState.LEASED.value for shard in shards if shard.kind != ShardKind.SMOKE.value):
        return None, True
    has_begun = any(s.state != ShardState.QUEUED.value for s in shards if s.kind == ShardKind.RUNS.value)
    queued = [shard for shard in shards if shard.state == ShardState.QUEUED.value]
    return min(queued, key=lambda shard: (shard.turn, shard.id), default=None), has_begun


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
