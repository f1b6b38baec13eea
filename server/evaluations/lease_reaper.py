"""Finds what was lost: leases whose worker is silent, work nobody was told of, scores that never came.

Safe to run at any time, by any number of processes, twice at once.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from lethe.runtime.error_classes import ErrorClass
from server.evaluations import lease_repository, queue_repository, repository, service, unserved, verified_runs
from server.models.evaluation import EvaluationState, Shard, ShardState
from server.models.submission import Fault
from server.queue import EVALUATE_SHARD, MAX_WAKE_UPS, RESENT_AFTER, SCORE_EVALUATION, send_after_commit

UNSCORED_FOR = timedelta(hours=24)  # long after the alarm; what cannot be scored then never will be


@dataclass(frozen=True)
class Swept:
    """What one sweep found."""

    leases_lost: int
    hints_sent: int
    scores_asked: int


def sweep(
    session: Session,
    at: datetime,
    *,
    max_attempts: int,
    lease_s: float | None = None,
    resent_after: timedelta = RESENT_AFTER,
) -> Swept:
    """Requeue shards whose lease is over, and send the messages that may have been lost.

    at: this moment by the database's clock. lease_s: the longest lease there can be; one that ends later was given
    before the clock was set back, and is shortened. resent_after: how long work waits until its message counts as lost.
    """
    if lease_s is not None:
        queue_repository.shorten_leases(session, at=at, lease_s=lease_s)
    expired = queue_repository.expired_shards(session, at)
    lost = sum(_take_back(session, shard, at, max_attempts=max_attempts) for shard in expired)
    forgotten = at - resent_after
    waiting = queue_repository.forgotten(session, queued_before=forgotten)
    for routing_key, shards in waiting.items():
        send_after_commit(session, EVALUATE_SHARD, times=shards, to=routing_key)
    for evaluation_id in repository.unscored(session, since_before=at - UNSCORED_FOR, most=MAX_WAKE_UPS):
        _give_up(session, evaluation_id)
    unscored = repository.unscored(session, since_before=forgotten, most=MAX_WAKE_UPS)
    for evaluation_id in unscored:
        send_after_commit(session, SCORE_EVALUATION, evaluation_id)
    return Swept(leases_lost=lost, hints_sent=sum(waiting.values()), scores_asked=len(unscored))


def _take_back(session: Session, shard: Shard, at: datetime, *, max_attempts: int) -> bool:
    # The evaluation is locked before the shard everywhere, so that two closers never wait for each other.
    evaluation = repository.lock_evaluation(session, shard.evaluation_id)
    failed_attempts = shard.failed_attempts + 1
    trusted_only = shard.trusted_only
    if failed_attempts >= max_attempts and verified_runs.needs_trusted_attempts(session, shard.id):
        failed_attempts, trusted_only = 0, True
    again = failed_attempts < max_attempts
    attempt, runs_done = shard.attempt, shard.runs_done
    detail = f"no heartbeat from {shard.worker} before {shard.lease_expires_at}"
    taken = repository.leave_shard(
        session,
        shard.id,
        attempt=attempt,
        state=ShardState.QUEUED if again else ShardState.FAILED,
        expired_before=at,
        worker=None,
        avoided_host=unserved.host_to_avoid(
            session, shard.split_id, worker=str(shard.worker), trusted_only=trusted_only
        ),
        token_id=None,
        queued_at=at,
        runs_done=0,
        wall_time_s=0.0,
        failed_attempts=failed_attempts,
        trusted_only=trusted_only,
    )
    if not taken:
        return False
    lease_repository.end_attempt(
        session, shard.id, attempt=attempt, outcome="lost", at=at, runs_done=runs_done, detail=detail
    )
    if again:
        send_after_commit(session, EVALUATE_SHARD, to=repository.routing_key_for(session, shard.split_id))
    else:
        service.fail(
            session, evaluation, fault=Fault.HOST, error_class=ErrorClass.WORKER_LOST, error=_lost(shard, max_attempts)
        )
    return True


def _give_up(session: Session, evaluation_id: str) -> None:
    """End an evaluation whose results cannot be scored: they are gone from storage, or the scorer meets an error."""
    evaluation = repository.lock_evaluation(session, evaluation_id)
    if evaluation.state != EvaluationState.SCORING.value:
        return  # scored now
    error: dict[str, object] = {
        "message": "The runs finished but could not be scored. It does not count against your quota, and the "
        "organisers have been told.",
        "run": 0,
        "exception_type": None,
        "file": None,
        "line": None,
    }
    service.fail(session, evaluation, fault=Fault.HOST, error_class=ErrorClass.NOT_SCORED, error=error)


def _lost(shard: Shard, attempts: int) -> dict[str, object]:
    return {
        "message": f"{attempts} workers in a row were lost while they ran this submission. It does not count against "
        "your quota, and the organisers have been notified.",
        "run": shard.first_run,
        "exception_type": None,
        "file": None,
        "line": None,
    }
