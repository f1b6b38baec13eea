"""A preparation that many workers share: shards of models, leased, reported on, done or given back.

Every step names the shard's attempt, and changes nothing if that attempt is no longer the current one. A step that
touches a shard and its split takes the split's row first, so that no two of them wait for each other.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from lethe.competition.file import CompetitionFile
from lethe.competition.preparation_share import ShardToMake
from lethe.competition.visibility import Visibility
from server.competitions import competitions, split_leases, stalled_preparations
from server.competitions.split_leases import SplitWork
from server.competitions.stored_file import split_file, stored_file
from server.db import clock, database_time
from server.jobs.leases import AVOIDED_FOR_S, Jobs, Loss, claiming, take
from server.models.competition import Competition, CompetitionState, ModelShard, ModelShardState, Split, SplitState
from server.models.worker import Worker, WorkerFacts, WorkerState, host_of, minor_version
from server.queue import PREPARE_SHARD, PREPARE_SPLIT, RESENT_AFTER, send_after_commit

SEEN_WITHIN_S = 60.0
_QUEUED = ModelShard.state == ModelShardState.QUEUED.value


@dataclass(frozen=True)
class ShardWork:
    """What a worker needs to train a shard."""

    shard_id: int
    split_id: str
    attempt: int
    failed_attempts: int
    visibility: str
    version: int
    competition: CompetitionFile
    shard: ShardToMake


def divide(
    session: Session, work: SplitWork, shards: Sequence[ShardToMake], *, device: str, versions: dict[str, str]
) -> bool:
    """Give the rest of a split's preparation to others. Return False if the work was lost before."""
    n_models = sum(shard.n_models for shard in shards)
    stage = stalled_preparations.training_stage(n_models, len(shards))
    if not split_leases.let_go(session, work, stage=stage, device=device, versions=versions):
        return False
    session.add_all(ModelShard(split_id=work.split_id, **vars(shard)) for shard in shards)
    session.flush()
    competition = session.get_one(Split, work.split_id).competition_id
    competitions.note_prepared(session, session.get_one(Competition, competition))
    send_after_commit(session, PREPARE_SHARD, times=len(shards))
    return True


def claim(
    session: Session,
    facts: WorkerFacts,
    *,
    lease_s: float,
    competitions: Sequence[str] | None = None,
    organisers: Collection[str] | None = None,
    submissions_wait: bool = False,
) -> ShardWork | None:
    """Lease the first queued shard that the worker fits, or return None. Those of public splits come first.

    competitions: the slugs of the only competitions that the worker serves; None for all. organisers: the accounts
    whose preparations may go on (preparation_turns.py); None for all. submissions_wait: then a private split that is
    not needed for long waits, too.
    """
    at = clock(session)
    fitting = [split for split in _divided(session, competitions, organisers) if fits(facts, split)]
    needed = [split for split in fitting if not (submissions_wait and is_needed_later(session, split, at))]
    public = [split.id for split in needed if split.visibility == Visibility.PUBLIC]
    private = [split.id for split in needed if split.visibility != Visibility.PUBLIC]
    shard = _lease_first(session, public, facts, lease_s=lease_s) or _lease_first(
        session, private, facts, lease_s=lease_s
    )
    return None if shard is None else _work(session, shard)


def is_needed_later(session: Session, split: Split, at: datetime) -> bool:
    """Return whether nobody needs the split's models for long: a private one's before half of the time to the close."""
    if split.visibility == Visibility.PUBLIC or not split.is_current:
        return False
    competition = session.get_one(Competition, split.competition_id)
    if competition.state == CompetitionState.PREPARING and stored_file(competition).splits.opens_with == "both":
        return False
    return at < competition.opens_at + (competition.closes_at - competition.opens_at) / 2


def _lease_first(session: Session, splits: Collection[str], facts: WorkerFacts, *, lease_s: float) -> ModelShard | None:
    """Lease the first queued shard of these splits."""
    if not splits:
        return None
    first = (
        select(ModelShard.id)
        .where(ModelShard.split_id.in_(splits), _QUEUED, ModelShard.id.not_in(_failed_here(session, facts)))
        .order_by(ModelShard.id)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    values = {"worker": facts.name, "claimed_at": database_time(), "models_done": 0.0}
    chosen = ModelShard.id == first.scalar_subquery()
    return take(session, claiming(ModelShard, chosen, state=ModelShardState.LEASED.value, lease_s=lease_s, **values))


def heartbeat(session: Session, work: ShardWork, *, lease_s: float, models_done: float) -> bool:
    """Say that the worker lives and how far it is. Return False if the shard is no longer its own."""
    _lock(session, work.split_id)
    held = MODEL_SHARDS.hold(session, work.shard_id, work.attempt, lease_s=lease_s, models_done=models_done)
    if held:
        _show_progress(session, work.split_id)
    return held


def close(session: Session, work: ShardWork) -> bool:
    """Store that the shard is made; the last one asks for the split's finish. Return False if it was lost before."""
    _lock(session, work.split_id)
    if not _finish(session, work, ModelShardState.DONE, models_done=work.shard.n_models, error=""):
        return False
    _show_progress(session, work.split_id)
    if not session.scalar(select(split_leases.has_open_shards(work.split_id))):
        send_after_commit(session, PREPARE_SPLIT, work.split_id)
    return True


def fail(session: Session, work: ShardWork, error: str) -> bool:
    """End the preparation because of this shard; the organiser sees why. Return False if the shard was lost before."""
    split = _lock(session, work.split_id)
    if not _finish(session, work, ModelShardState.FAILED, error=error):
        return False
    _end(session, split, error)
    return True


def give_back(session: Session, work: ShardWork, *, reason: str, max_attempts: int) -> bool:
    """Return the shard to the queue because this host could not make it; after `max_attempts` that is the end."""
    shard = session.get_one(ModelShard, work.shard_id)
    return MODEL_SHARDS.lose(session, shard, Loss(work.attempt, reason), max_attempts=max_attempts)


def hand_over(session: Session, work: ShardWork) -> bool:
    """Return the shard to the queue because its worker stops, which is nobody's fault."""
    queued = {"state": ModelShardState.QUEUED.value, "queued_at": database_time()}
    back = MODEL_SHARDS.leave(session, work.shard_id, work.attempt, **queued)
    if back:
        send_after_commit(session, PREPARE_SHARD)
    return back


def notify(
    session: Session, at: datetime, *, resent_after: timedelta = RESENT_AFTER, submissions_wait: bool = False
) -> None:
    """Tell of the shards that nobody took, workers and organisers alike. submissions_wait: as `claim` has it."""
    queued = session.scalar(
        select(func.count()).select_from(ModelShard).where(_QUEUED, ModelShard.queued_at < at - resent_after)
    )
    send_after_commit(session, PREPARE_SHARD, times=queued or 0)
    waiting = _divided(session, None, None) if submissions_wait else ()
    held_back = {split.id for split in waiting if is_needed_later(session, split, at)}
    stalled_preparations.notify(session, at, held_back=held_back)


class _ModelShards(Jobs[ModelShard]):
    table = ModelShard
    queued, leased = ModelShardState.QUEUED.value, ModelShardState.LEASED.value
    failed = ModelShardState.FAILED.value

    def lock(self, session: Session, job: ModelShard) -> None:
        _lock(session, job.split_id)

    def retry(self, session: Session, job: ModelShard, loss: Loss, *, max_attempts: int) -> dict[str, Any] | None:
        last = job.failed_attempts + 1 >= max_attempts
        return None if last else {"queued_at": database_time(), "error": loss.reason}

    def on_requeued(self, session: Session, job: ModelShard, loss: Loss) -> None:
        send_after_commit(session, PREPARE_SHARD)

    def on_given_up(self, session: Session, job: ModelShard, loss: Loss) -> None:
        last = job.first_model + job.n_models - 1
        models = f"{job.kind} models {job.first_model} to {last}"
        job.error = f"{models}: {job.failed_attempts} attempts failed, the last one so: {loss.reason}"
        job.finished_at = clock(session)
        _end(session, session.get_one(Split, job.split_id), job.error)


MODEL_SHARDS = _ModelShards()


def _divided(
    session: Session, competitions: Sequence[str] | None, organisers: Collection[str] | None
) -> Sequence[Split]:
    """Return the splits that have queued shards."""
    queued = select(ModelShard.split_id).where(_QUEUED)
    statement = select(Split).where(Split.id.in_(queued), Split.state == SplitState.PREPARING.value)
    statement = statement.where(Split.competition_id.in_(split_leases.of_known_schema()))
    if competitions is not None:
        served = select(Competition.id).where(Competition.slug.in_(competitions))
        statement = statement.where(Split.competition_id.in_(served))
    if organisers is not None:
        theirs = select(Competition.id).where(Competition.created_by.in_(organisers))
        statement = statement.where(Split.competition_id.in_(theirs))
    return session.scalars(statement).all()


def _failed_here(session: Session, facts: WorkerFacts) -> list[int]:
    """Return the shards that the worker's host has just failed at, where a worker of another host is there for them."""
    host = host_of(facts.name)
    failed = _QUEUED, ModelShard.failed_attempts > 0
    lately = ModelShard.queued_at > database_time(-AVOIDED_FOR_S)
    rows = session.execute(select(ModelShard.id, ModelShard.worker).where(*failed, lately))
    mine = [row.id for row in rows if host_of(row.worker or "") == host]
    if not mine or not host:
        return []
    kind = minor_version(facts.versions.get("torch"))
    alive = Worker.seen_at > database_time(-SEEN_WITHIN_S), Worker.state == WorkerState.ACTIVE.value
    others = session.scalars(select(Worker).where(*alive, Worker.token_id.is_(None), Worker.device == facts.device))
    takes = any(host_of(each.name) != host and minor_version(each.versions.get("torch")) == kind for each in others)
    return mine if takes else []


def fits(facts: WorkerFacts, split: Split) -> bool:
    """Return whether the worker may go on with a divided split: one kind of device and torch makes its models."""
    alike = minor_version(split.versions.get("torch")) == minor_version(facts.versions.get("torch"))
    return alike and split.device == facts.device


def _work(session: Session, shard: ModelShard) -> ShardWork:
    split = session.get_one(Split, shard.split_id)
    competition = session.get_one(Competition, split.competition_id)
    return ShardWork(
        shard_id=shard.id,
        split_id=shard.split_id,
        attempt=shard.attempt,
        failed_attempts=shard.failed_attempts,
        visibility=split.visibility,
        version=split.version,
        competition=split_file(competition, split),
        shard=ShardToMake(shard.kind, shard.position, shard.first_model, shard.n_models),
    )


def _end(session: Session, split: Split, error: str) -> None:
    split.state, split.error, split.lease_expires_at = SplitState.FAILED.value, error, None
    session.execute(
        update(ModelShard)
        .where(split_leases.is_open_shard_of(split.id))
        .values(state=ModelShardState.CANCELLED.value, lease_expires_at=None)
    )
    session.flush()
    stalled_preparations.stop_twins(session, split)


def _show_progress(session: Session, split_id: str) -> None:
    share = func.sum(ModelShard.models_done) / func.sum(ModelShard.n_models)
    done = select(share).where(ModelShard.split_id == split_id).scalar_subquery()
    session.execute(
        update(Split).where(Split.id == split_id, Split.state == SplitState.PREPARING.value).values(progress=done)
    )


def _lock(session: Session, split_id: str) -> Split:
    return session.get_one(Split, split_id, with_for_update=True, populate_existing=True)


def _finish(session: Session, work: ShardWork, state: ModelShardState, **values: Any) -> bool:
    values |= {"state": state.value, "finished_at": database_time()}
    return MODEL_SHARDS.leave(session, work.shard_id, work.attempt, **values)
