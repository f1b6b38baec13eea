"""Leases. A worker asks for *a* shard, holds it by heartbeats, and leaves it once: done, failed or given back.

Every step names the attempt, and changes nothing if that attempt is no longer the current one. So a worker that
was thought dead, and is not, cannot disturb the one that took over.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy.orm import Session

from lethe.runtime.error_classes import OF_THE_MACHINE, ErrorClass
from server.db import clock, database_time
from server.evaluations import (
    evaluation_repository,
    evaluations,
    lease_repository,
    queue_repository,
    unserved,
    verified_runs,
)
from server.evaluations.claimed_shard import ClaimedShard, ShardFailure, claimed_shard
from server.jobs.leases import Jobs, Loss
from server.models.evaluation import RunLog, Shard, ShardKind, ShardState
from server.models.submission import Fault
from server.queue import EVALUATE_SHARD, send_after_commit

# A failure of these classes may be a slow or small machine's own: it accuses nobody where another machine has none.
TOO_LONG = "it took too long, with untrusted workers; trusted ones run it again"
OUR_PROBLEM = "The evaluation could not be run because of a problem on our side."
LOST = "{n} workers in a row were lost while they ran this submission."


def claim(
    session: Session, *, worker: str, lease_s: float, splits: Sequence[str] | None = None, token_id: str | None = None
) -> ClaimedShard | None:
    """Give the fairest queued shard of these splits (None: all) to `worker`, or None. token_id: if not trusted."""
    shard = queue_repository.take_fairest(session, worker=worker, lease_s=lease_s, splits=splits, token_id=token_id)
    if shard is None:
        return None
    evaluation, submission, split, competition = lease_repository.context(session, shard.evaluation_id)
    lease_repository.begin(session, shard, evaluation, submission)
    return claimed_shard(shard, evaluation, submission, split, competition)


def heartbeat(session: Session, shard: ClaimedShard, *, lease_s: float, runs_done: int, wall_time_s: float) -> bool:
    """Say that the worker lives. Return False if the shard is no longer its own, or the submission's time is up."""
    runs = lease_repository.hold(session, shard, lease_s=lease_s, runs_done=runs_done, wall_time_s=wall_time_s)
    return runs is not None and not _is_over(shard, runs.wall_time_s)


def close(
    session: Session,
    shard: ClaimedShard,
    *,
    result_key: str | None,
    result_sha256: str | None,
    wall_time_s: float,
    verified_share: float,
) -> bool:
    """Store that the shard is done; the last one starts the scoring. Return False if the attempt is not current."""
    runs = lease_repository.close(
        session, shard, wall_time_s=wall_time_s, result_key=result_key, result_sha256=result_sha256
    )
    if runs is None:
        return False
    if _is_over(shard, runs.wall_time_s):
        if not verified_runs.take_back(session, shard.evaluation_id, reason=TOO_LONG):
            _fail_over_time(session, shard)
    elif shard.kind is ShardKind.SMOKE:
        evaluations.queue_runs_after_smoke(session, shard.evaluation_id)
    elif runs.unfinished_shards == 0 and not verified_runs.draw(session, shard.evaluation_id, share=verified_share):
        evaluations.ask_for_score(session, shard.evaluation_id)
    return True


def fail(session: Session, shard: ClaimedShard, failure: ShardFailure, *, runs_done: int) -> bool:
    """End the evaluation because of this shard, unless only an untrusted worker saw it. False if it is another's."""
    evaluation_repository.lock_team_of(session, shard.submission_id)  # first, as whoever cancels or merges does
    evaluation = evaluation_repository.lock_evaluation(session, shard.evaluation_id)
    if is_untrusted(session, shard):
        outcome = "given-back" if failure.error_class in OF_THE_MACHINE else "unconfirmed"
        why = f"{failure.error_class}: {failure.message} {failure.detail}".strip()
        return _requeue(session, shard, reason=why, runs_done=runs_done, outcome=outcome, trusted_only=True)
    if not _leave_failed(session, shard, runs_done=runs_done, detail=failure.detail):
        return False
    evaluations.fail(
        session, evaluation, fault=failure.fault, error_class=failure.error_class, error=failure.fields(shard)
    )
    return True


def give_back(session: Session, shard: ClaimedShard, *, reason: str, runs_done: int, max_attempts: int) -> bool:
    """Return the shard to the queue because this host could not run it; after `max_attempts` that is the end, or,
    where others than trusted workers were among them, trusted ones try."""
    row = session.get_one(Shard, shard.shard_id)
    loss = Loss(shard.attempt, reason, runs_done=runs_done)
    return SHARDS.lose(session, row, loss, max_attempts=max_attempts)


def hand_over(session: Session, shard: ClaimedShard, *, runs_done: int) -> bool:
    """Return the shard to the queue because its worker stops; not counted as a failed attempt."""
    return _requeue(
        session, shard, reason="the worker stops", runs_done=runs_done, failed_attempts=shard.failed_attempts
    )


def check_again(session: Session, shard: ClaimedShard, *, result_key: str, result_sha256: str) -> bool:
    """Return a check to the queue, its outputs kept, so that a second trusted worker makes them again."""
    reason = "its outputs differ from the untrusted worker's; made again"
    return _requeue(
        session,
        shard,
        reason=reason,
        runs_done=shard.n_runs,
        avoided_host=_host_to_avoid(session, session.get_one(Shard, shard.shard_id)),
        result_key=result_key,
        result_sha256=result_sha256,
    )


def _requeue(
    session: Session, shard: ClaimedShard, *, reason: str, runs_done: int, outcome: str = "given-back", **values: Any
) -> bool:
    back = SHARDS.leave(session, shard.shard_id, shard.attempt, **_queued(**values))
    if back:
        _end(session, shard.shard_id, shard.attempt, outcome, runs_done=runs_done, detail=reason)
        send_after_commit(session, EVALUATE_SHARD, to=shard.routing_key)
    return back


def _queued(*, failed_attempts: int = 0, avoided_host: str | None = None, **values: Any) -> dict[str, Any]:
    """Return the columns of a shard that is queued again."""
    return values | {
        "state": ShardState.QUEUED.value,
        "worker": None,
        "avoided_host": avoided_host,
        "token_id": None,
        "queued_at": database_time(),
        "runs_done": 0,
        "wall_time_s": 0.0,
        "failed_attempts": failed_attempts,
    }


def _host_to_avoid(session: Session, shard: Shard) -> str | None:
    return unserved.host_to_avoid(session, shard.split_id, worker=str(shard.worker), trusted_only=shard.trusted_only)


class _Shards(Jobs[Shard]):
    table = Shard
    queued, leased, failed = ShardState.QUEUED.value, ShardState.LEASED.value, ShardState.FAILED.value

    def lock(self, session: Session, job: Shard) -> None:
        evaluation_repository.lock_evaluation(session, job.evaluation_id)

    def retry(self, session: Session, job: Shard, loss: Loss, *, max_attempts: int) -> dict[str, Any] | None:
        failed, trusted_only = job.failed_attempts + 1, job.trusted_only
        if failed >= max_attempts:
            if not verified_runs.needs_trusted_attempts(session, job.id):
                return None
            failed, trusted_only = 0, True
        avoided_host = _host_to_avoid(session, job)
        return _queued(failed_attempts=failed, avoided_host=avoided_host, trusted_only=trusted_only)

    def on_requeued(self, session: Session, job: Shard, loss: Loss) -> None:
        outcome = "lost" if loss.silent else "given-back"
        _end(session, job.id, loss.attempt, outcome, runs_done=loss.runs_done, detail=loss.reason)
        send_after_commit(session, EVALUATE_SHARD, to=evaluation_repository.routing_key_for(session, job.split_id))

    def on_given_up(self, session: Session, job: Shard, loss: Loss) -> None:
        outcome = "lost" if loss.silent else "failed"
        _end(session, job.id, loss.attempt, outcome, runs_done=loss.runs_done, detail=loss.reason)
        message = LOST.format(n=job.failed_attempts) if loss.silent else OUR_PROBLEM
        error_class = ErrorClass.WORKER_LOST if loss.silent else ErrorClass.HOST_FAULT
        evaluation = evaluation_repository.lock_evaluation(session, job.evaluation_id)
        evaluations.fail_on_our_side(session, evaluation, error_class, message, run=job.first_run)


SHARDS = _Shards()


def take_from(session: Session, workers: Sequence[str], *, reason: str) -> int:
    """Return the shards of these workers to the queue, not counted as failed. Return how many."""
    taken = 0
    for row in queue_repository.leased_by(session, workers):
        evaluation_repository.lock_evaluation(session, row.evaluation_id)
        shard = claimed_shard(row, *lease_repository.context(session, row.evaluation_id))
        taken += _requeue(session, shard, reason=reason, runs_done=row.runs_done, failed_attempts=row.failed_attempts)
    return taken


def held(session: Session, shard_id: int, *, attempt: int, worker: str) -> ClaimedShard | None:
    """Return the shard of an attempt that `worker` made, whether or not it is the current one; None without it."""
    made = evaluation_repository.attempt_row(session, shard_id, attempt)
    if made is None or made.worker != worker:
        return None
    shard = session.get_one(Shard, shard_id)
    claimed = claimed_shard(shard, *lease_repository.context(session, shard.evaluation_id))
    return replace(claimed, attempt=attempt)


def held_by(session: Session, worker: str) -> ClaimedShard | None:
    """Return the shard that `worker` holds now: the answer to its claim may have been lost."""
    row = next(iter(queue_repository.leased_by(session, [worker])), None)
    return None if row is None else claimed_shard(row, *lease_repository.context(session, row.evaluation_id))


def outcome(session: Session, shard: ClaimedShard) -> str:
    """Return how the attempt ended: running, done, failed, lost, given-back or cancelled."""
    made = evaluation_repository.attempt_row(session, shard.shard_id, shard.attempt)
    return made.outcome if made else "lost"


def keep_logs(session: Session, shard: ClaimedShard, logs: Sequence[tuple[int, str]]) -> None:
    """Keep what some runs printed."""
    session.add_all(
        RunLog(
            evaluation_id=shard.evaluation_id,
            run=run,
            on_public_sample=shard.kind is ShardKind.SMOKE,
            text=text.replace("\x00", ""),  # PostgreSQL's text holds none
        )
        for run, text in logs
    )


def note_controls(session: Session, shard: ClaimedShard, controls: dict[str, Any]) -> None:
    """Record what confined the attempt's runs on its host."""
    row = evaluation_repository.attempt_row(session, shard.shard_id, shard.attempt)
    if row is not None:
        row.controls = controls


def is_current(session: Session, shard: ClaimedShard) -> bool:
    """Return whether the attempt still holds the shard."""
    return SHARDS.is_current(session, shard.shard_id, shard.attempt)


def is_over_time(session: Session, shard: ClaimedShard) -> bool:
    """Return whether the runs of the evaluation have together used up the competition's time."""
    return _is_over(shard, evaluation_repository.wall_time_used(session, shard.evaluation_id))


def _is_over(shard: ClaimedShard, wall_time_s: float) -> bool:
    return shard.kind is ShardKind.RUNS and wall_time_s > shard.competition.limits.wall_time_s


def is_untrusted(session: Session, shard: ClaimedShard) -> bool:
    """Return whether an untrusted worker holds the shard, or made the last attempt at it."""
    return evaluation_repository.untrusted_token(session, shard.shard_id) is not None


def measured_s(session: Session, shard: ClaimedShard) -> float | None:
    """Return how long an untrusted worker has had the shard, by the database's clock; None if a trusted one has it,
    whose own clock counts."""
    row = session.get_one(Shard, shard.shard_id)
    if row.token_id is None or row.claimed_at is None:
        return None
    return (clock(session) - row.claimed_at).total_seconds()


def _fail_over_time(session: Session, shard: ClaimedShard) -> None:
    limit = shard.competition.limits.wall_time_s
    failure = ShardFailure(
        fault=Fault.PARTICIPANT,
        error_class=ErrorClass.EVALUATION_TIMEOUT,
        message=f"All runs together took longer than the {limit:g} s that this competition allows.",
        run=shard.first_run,
    )
    evaluations.fail(
        session,
        evaluation_repository.lock_evaluation(session, shard.evaluation_id),
        fault=failure.fault,
        error_class=failure.error_class,
        error=failure.fields(shard),
    )


def fail_over_time(session: Session, shard: ClaimedShard, *, runs_done: int) -> bool:
    """End the evaluation because its runs together took too long, if the shard is still the worker's.

    The time of untrusted workers proves nothing: what they had a part in, trusted ones make again instead.
    """
    evaluation_repository.lock_team_of(session, shard.submission_id)  # first, as in `fail`
    evaluation_repository.lock_evaluation(session, shard.evaluation_id)
    if is_untrusted(session, shard):
        return hand_to_trusted(session, shard, runs_done=runs_done)
    if is_current(session, shard) and verified_runs.take_back(session, shard.evaluation_id, reason=TOO_LONG):
        same = shard.failed_attempts
        return _requeue(session, shard, reason=TOO_LONG, runs_done=runs_done, failed_attempts=same)
    if not _leave_failed(session, shard, runs_done=runs_done):
        return False
    _fail_over_time(session, shard)
    return True


def hand_to_trusted(session: Session, shard: ClaimedShard, *, runs_done: int) -> bool:
    """Return to the queue, for trusted workers, a shard that took an untrusted one too long."""
    return _requeue(session, shard, reason=TOO_LONG, runs_done=runs_done, trusted_only=True)


def _leave_failed(session: Session, shard: ClaimedShard, *, runs_done: int, detail: str = "") -> bool:
    state = ShardState.FAILED.value
    if not SHARDS.leave(session, shard.shard_id, shard.attempt, state=state, runs_done=runs_done):
        return False
    _end(session, shard.shard_id, shard.attempt, "failed", runs_done=runs_done, detail=detail)
    return True


def _end(session: Session, shard_id: int, attempt: int, outcome: str, *, runs_done: int, detail: str = "") -> None:
    lease_repository.end_attempt(
        session, shard_id, attempt=attempt, outcome=outcome, runs_done=runs_done, detail=detail
    )
