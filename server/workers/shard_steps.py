"""What workers do with shards: the same steps for those that reach the database and those that reach HTTP alone.

Each of the latter is known by its token and a name that it chooses: no token reaches another's workers or shards.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field
from sqlalchemy.orm import Session

from lethe.competition.run_limits import run_limit
from lethe.errors import NotFound, Violation
from server.competitions.stored_file import stored_file
from server.config import Settings
from server.errors import Conflict, NotAuthenticated
from server.evaluations import leases
from server.evaluations.claimed_shard import ClaimedShard, ShardFailure
from server.models.worker import Worker, WorkerFacts, WorkerState, WorkerToken
from server.workers import registration, verification, worker_repository
from server.workers.registration import Fitting, fitting

HEARTBEATS_PER_LEASE = 12  # over a network a heartbeat a second would tell little and cost much
SET_UP_S = 600.0  # to fetch a split and to start a sandbox
MAX_WORKERS = 2000  # processes that are started again and again have new names
Logs = Sequence[tuple[int, str]]
n_forget = worker_repository.n_forget


@dataclass(frozen=True)
class Terms:
    """What a worker that was accepted goes by."""

    lease_s: Annotated[float, Field(description="a shard whose worker is silent this long is given to another")]
    heartbeat_s: Annotated[float, Field(description="how often to renew a lease")]
    poll_s: Annotated[float, Field(description="how long to wait where there was no shard")]
    refusals: Annotated[tuple[str, ...], Field(description="why some splits refuse this worker")]
    fits_none: Annotated[bool, Field(description="whether every split does")]


@dataclass(frozen=True)
class Claim:
    """A shard, or none, and why splits refuse this worker."""

    shard: ClaimedShard | None
    refusals: tuple[str, ...]


def register(session: Session, settings: Settings, token: WorkerToken, facts: WorkerFacts) -> Terms:
    """Register a worker, also one that fits no split: organisers see why. Raises Conflict for too many."""
    named = replace(facts, name=_full_name(token, facts.name))
    if session.get(Worker, named.name) is None and worker_repository.count_workers(session, token.id) >= MAX_WORKERS:
        raise Conflict(f"A token has at most {MAX_WORKERS} workers within a week; make another token")
    fit = _fitting(session, token, named)
    registration.report(session, named, fit, token_id=token.id)
    reasons = tuple(fit.refusals.values())
    return Terms(
        lease_s=settings.lease_s,
        heartbeat_s=max(settings.heartbeat_s, settings.lease_s / HEARTBEATS_PER_LEASE),
        poll_s=settings.sweep_interval_s,
        refusals=reasons,
        fits_none=bool(reasons) and not fit.splits,
    )


def require_accepted(terms: Terms) -> Terms:
    """Return the terms of a worker that some split takes, or may once it is prepared. Raises Conflict."""
    if terms.fits_none:
        reasons = tuple(Violation("worker", reason) for reason in terms.refusals)
        listed = "; ".join(terms.refusals)
        raise Conflict(f"This worker fits no split that it may serve. {listed}", violations=reasons)
    return terms


def claim(session: Session, settings: Settings, token: WorkerToken, name: str) -> Claim:
    """Give the fairest shard that the worker fits, or the one that it holds. Raises NotFound if not registered."""
    require_valid(session, token)
    worker = _worker(session, token, name)
    if worker.state != WorkerState.ACTIVE.value:
        return Claim(None, ())
    facts = _facts(worker)
    fit = _fitting(session, token, facts)
    registration.report(session, facts, fit, token_id=token.id)
    shard = leases.held_by(session, worker.name) or leases.claim(
        session,
        worker=worker.name,
        lease_s=settings.lease_s,
        splits=fit.splits,
        token_id=None if token.trusted else token.id,
    )
    return Claim(shard, tuple(fit.refusals.values()))


def set_state(session: Session, token: WorkerToken, name: str, state: WorkerState, *, detail: str = "") -> None:
    """Set the worker's state to draining or stopped. Raises NotFound."""
    worker = _worker(session, token, name)
    facts = _facts(worker)
    fit = Fitting((), dict(worker.refusals))
    registration.report(session, facts, fit, state=state, detail=detail, token_id=token.id)


def held(session: Session, token: WorkerToken, name: str, *, shard_id: int, attempt: int) -> ClaimedShard:
    """Return the shard of an attempt of this worker. Raises NotFound for any other."""
    claimed = leases.held(session, shard_id, attempt=attempt, worker=_full_name(token, name))
    if claimed is None:
        raise NotFound(f"The worker {name} has made no attempt {attempt} at shard {shard_id}")
    return claimed


def require_current(session: Session, shard: ClaimedShard) -> ClaimedShard:
    """Return the shard if the attempt still holds it. Raises NotFound: its files are the holder's alone."""
    if not leases.is_current(session, shard):
        raise NotFound(f"Attempt {shard.attempt} no longer holds shard {shard.shard_id}")
    return shard


def heartbeat(session: Session, settings: Settings, shard: ClaimedShard, *, runs_done: int, wall_time_s: float) -> bool:
    """Renew the lease. An untrusted worker has used the time since its claim, whatever it says, and loses the shard
    once that is too much."""
    measured_s = leases.measured_s(session, shard)
    used_s, done = wall_time_s if measured_s is None else measured_s, min(runs_done, shard.n_runs)
    held = leases.heartbeat(session, shard, lease_s=settings.lease_s, runs_done=done, wall_time_s=used_s)
    if measured_s is not None and (not held or measured_s > max_duration_s(shard)):
        leases.hand_to_trusted(session, shard, runs_done=done)
        return False
    return held


def max_duration_s(shard: ClaimedShard) -> float:
    """Return how long an untrusted worker may hold a shard, seconds: twice what its runs may take, for their evaluation
    takes time too, and what setting up takes."""
    limits = shard.competition.limits
    limit = run_limit(limits, shard.retraining)
    run_s = limit.wall_time_s if limit.cpu_time_s is None else max(limit.cpu_time_s, limits.run_wall_time_floor_s)
    return SET_UP_S + 2 * shard.n_runs * run_s


def close(
    session: Session,
    settings: Settings,
    shard: ClaimedShard,
    logs: Logs = (),
    *,
    result_key: str | None = None,
    result_sha256: str | None = None,
    wall_time_s: float,
    measured_s: float | None = None,
) -> bool:
    """Close the shard. measured_s: an untrusted worker's time (`leases.measured_s`). True again when repeated."""
    closed = leases.close(
        session,
        shard,
        result_key=result_key,
        result_sha256=result_sha256,
        wall_time_s=wall_time_s if measured_s is None else measured_s,
        verified_share=settings.verified_share,
    )
    if not closed:
        return leases.outcome(session, shard) == "done"
    leases.keep_logs(session, shard, logs)
    if measured_s is None and shard.attempt > 1:
        verification.note_contradicted(session, shard.shard_id)
    return True


def fail(session: Session, shard: ClaimedShard, failure: ShardFailure, logs: Logs, *, runs_done: int) -> bool:
    untrusted = leases.is_untrusted(session, shard)
    if leases.fail(session, shard, failure, runs_done=runs_done):
        if not untrusted:
            leases.keep_logs(session, shard, logs)
            verification.note_failed_check(session, shard, failure)
        return True
    return leases.outcome(session, shard) in ("failed", "unconfirmed", "given-back")


def give_back(session: Session, settings: Settings, shard: ClaimedShard, *, reason: str, runs_done: int) -> bool:
    limit = settings.max_attempts
    back = leases.give_back(session, shard, reason=reason, runs_done=runs_done, max_attempts=limit)
    return back or leases.outcome(session, shard) in ("given-back", "failed")


def hand_over(session: Session, shard: ClaimedShard, *, runs_done: int) -> bool:
    return leases.hand_over(session, shard, runs_done=runs_done) or leases.outcome(session, shard) == "given-back"


def end_if_over_time(session: Session, shard: ClaimedShard, *, runs_done: int) -> bool:
    if leases.is_over_time(session, shard) and leases.fail_over_time(session, shard, runs_done=runs_done):
        return True
    return leases.outcome(session, shard) in ("failed", "given-back")


def require_valid(session: Session, token: WorkerToken) -> None:
    """Raise NotAuthenticated if the token was revoked just now; else no revocation comes before the commit."""
    if not registration.still_holds(session, token.id):
        raise NotAuthenticated("The worker token was revoked or quarantined")


def _fitting(session: Session, token: WorkerToken, facts: WorkerFacts) -> Fitting:
    slugs = [each.slug for each in stored_file(token.competition).evaluated]
    return fitting(session, facts, competitions=slugs, public_only=token.public_only, trusted=token.trusted)


def _worker(session: Session, token: WorkerToken, name: str) -> Worker:
    worker = session.get(Worker, _full_name(token, name))
    if worker is None:
        raise NotFound(f"There is no worker {name!r} with this token; register first")
    return worker


def _facts(worker: Worker) -> WorkerFacts:
    return WorkerFacts(worker.name, worker.device, worker.memory_mib, worker.versions)


def _full_name(token: WorkerToken, name: str) -> str:
    return f"{token.id}/{name}"
