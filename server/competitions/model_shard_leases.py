"""A preparation that many workers share: shards of models, leased, reported on, done or given back.

Every step names the shard's attempt, and changes nothing if that attempt is no longer the current one. A step that
touches a shard and its split takes the split's row first, so that no two of them wait for each other.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, func, or_, select, update
from sqlalchemy.orm import Session

from lethe.competition.file import CompetitionFile
from lethe.competition.model_shards import ShardToMake
from lethe.competition.visibility import Visibility
from server.competitions import service, split_leases, stalled_preparations, stopped_preparations
from server.competitions.split_leases import SplitWork
from server.competitions.stored_file import split_file, stored_file
from server.conditional_update import changes_one_row
from server.db import clock, database_time
from server.models.competition import Competition, CompetitionState, Split, SplitState
from server.models.model_shard import ModelShard, ModelShardState
from server.models.worker import Worker, WorkerState
from server.queue import PREPARE_SHARD, PREPARE_SPLIT, RESENT_AFTER, send_after_commit
from server.worker_facts import WorkerFacts, host_of, minor_version

AVOIDED_FOR_S = 60.0  # then the host that failed at a shard may have it again
SEEN_WITHIN_S = 60.0
LEAVES = frozenset({ModelShardState.DONE, ModelShardState.FAILED, ModelShardState.CANCELLED})


@dataclass(frozen=True)
class ShardWork:
    """All that a worker needs to know to make a shard."""

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
    """Give the rest of a split's preparation to whoever asks for it. Return False if the work was lost before.

    device, versions: what made the split's first files, and so must make the others.
    """
    n_models = sum(shard.n_models for shard in shards)
    stage = stalled_preparations.training_stage(n_models, len(shards))
    if not split_leases.let_go(session, work, stage=stage, device=device, versions=versions):
        return False
    session.add_all(ModelShard(split_id=work.split_id, **vars(shard)) for shard in shards)
    session.flush()
    competition = session.get_one(Split, work.split_id).competition_id
    service.note_prepared(session, session.get_one(Competition, competition))
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
    fitting = [split for split in _divided(session, competitions, organisers) if _fits(facts, split)]
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
        .where(
            ModelShard.split_id.in_(splits),
            ModelShard.state == ModelShardState.QUEUED.value,
            ModelShard.id.not_in(_failed_here(session, facts)),
        )
        .order_by(ModelShard.id)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    statement = (
        update(ModelShard)
        .where(ModelShard.id == first.scalar_subquery())
        .values(
            state=ModelShardState.LEASED.value,
            attempt=ModelShard.attempt + 1,
            worker=facts.name,
            claimed_at=database_time(),
            lease_expires_at=database_time(lease_s),
            models_done=0.0,
        )
        .returning(ModelShard)
    )
    options = {"synchronize_session": False, "populate_existing": True}
    return session.scalars(statement, execution_options=options).one_or_none()


def heartbeat(session: Session, work: ShardWork, *, lease_s: float, models_done: float) -> bool:
    """Say that the worker lives and how far it is. Return False if the shard is no longer its own."""
    _lock(session, work.split_id)
    held = _update(session, work, lease_expires_at=database_time(lease_s), models_done=models_done)
    if held:
        _show_progress(session, work.split_id)
    return held


def close(session: Session, work: ShardWork) -> bool:
    """Store that the shard is made; the last one asks for the split's finish. Return False if it was lost before."""
    _lock(session, work.split_id)
    if not _leave(session, work, ModelShardState.DONE, models_done=work.shard.n_models, error=""):
        return False
    _show_progress(session, work.split_id)
    if not session.scalar(select(split_leases.has_open_shards(work.split_id))):
        send_after_commit(session, PREPARE_SPLIT, work.split_id)
    return True


def fail(session: Session, work: ShardWork, error: str) -> bool:
    """End the preparation because of this shard; the organiser sees why. Return False if the shard was lost before."""
    split = _lock(session, work.split_id)
    if not _leave(session, work, ModelShardState.FAILED, error=error):
        return False
    _end(session, split, error)
    return True


def give_back(session: Session, work: ShardWork, *, reason: str, max_attempts: int) -> bool:
    """Return the shard to the queue because this host could not make it; after `max_attempts` that is the end."""
    if work.failed_attempts + 1 >= max_attempts:
        return fail(session, work, _given_up(work.shard, max_attempts, reason))
    back = _leave(
        session,
        work,
        ModelShardState.QUEUED,
        failed_attempts=work.failed_attempts + 1,
        queued_at=database_time(),
        error=reason,
    )
    if back:
        send_after_commit(session, PREPARE_SHARD)
    return back


def hand_over(session: Session, work: ShardWork) -> bool:
    """Return the shard to the queue because its worker stops, which is nobody's fault."""
    back = _leave(session, work, ModelShardState.QUEUED, queued_at=database_time())
    if back:
        send_after_commit(session, PREPARE_SHARD)
    return back


def sweep(
    session: Session,
    at: datetime,
    *,
    max_attempts: int,
    resent_after: timedelta = RESENT_AFTER,
    submissions_wait: bool = False,
) -> int:
    """Take back the shards whose worker is silent, and tell of those that nobody took, workers and organisers alike.

    submissions_wait: as `claim` has it. Return how many were lost.
    """
    expired = session.scalars(
        select(ModelShard).where(_in(ModelShardState.LEASED), ModelShard.lease_expires_at < at)
    ).all()
    lost = sum(_take_back(session, shard, at, max_attempts=max_attempts) for shard in expired)
    queued = session.scalar(
        select(func.count())
        .select_from(ModelShard)
        .where(_in(ModelShardState.QUEUED), ModelShard.queued_at < at - resent_after)
    )
    send_after_commit(session, PREPARE_SHARD, times=queued or 0)
    waiting = _divided(session, None, None) if submissions_wait else ()
    held_back = {split.id for split in waiting if is_needed_later(session, split, at)}
    stalled_preparations.notify(session, at, held_back=held_back)
    return lost


def _divided(
    session: Session, competitions: Sequence[str] | None, organisers: Collection[str] | None
) -> Sequence[Split]:
    """Return the splits that have queued shards."""
    queued = select(ModelShard.split_id).where(_in(ModelShardState.QUEUED))
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
    failed = _in(ModelShardState.QUEUED), ModelShard.failed_attempts > 0
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


def _fits(facts: WorkerFacts, split: Split) -> bool:
    """Devices and releases of torch round differently; the models of one set are made by one kind."""
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


def _take_back(session: Session, shard: ModelShard, at: datetime, *, max_attempts: int) -> bool:
    split = _lock(session, shard.split_id)
    again = shard.failed_attempts + 1 < max_attempts
    reason = f"no heartbeat from {shard.worker} before {shard.lease_expires_at}"
    if not again:
        made = ShardToMake(shard.kind, shard.position, shard.first_model, shard.n_models)
        reason = _given_up(made, max_attempts, reason)
    lost = (
        ModelShard.id == shard.id,
        ModelShard.attempt == shard.attempt,
        _in(ModelShardState.LEASED),
        ModelShard.lease_expires_at < at,
    )
    values = {
        "state": (ModelShardState.QUEUED if again else ModelShardState.FAILED).value,
        "lease_expires_at": None,
        "failed_attempts": shard.failed_attempts + 1,
        "queued_at": database_time(),
        "error": reason,
    }
    taken = changes_one_row(session, update(ModelShard).where(*lost).values(values))
    if taken and again:
        send_after_commit(session, PREPARE_SHARD)
    elif taken:
        _end(session, split, reason)
    return taken


def _given_up(shard: ShardToMake, attempts: int, reason: str) -> str:
    last = shard.first_model + shard.n_models - 1
    return f"{shard.kind} models {shard.first_model} to {last}: {attempts} attempts failed, the last one so: {reason}"


def _end(session: Session, split: Split, error: str) -> None:
    split.state, split.error, split.lease_expires_at = SplitState.FAILED.value, error, None
    session.execute(
        update(ModelShard)
        .where(ModelShard.split_id == split.id, or_(_in(ModelShardState.QUEUED), _in(ModelShardState.LEASED)))
        .values(state=ModelShardState.CANCELLED.value, lease_expires_at=None)
    )
    session.flush()
    stopped_preparations.stop_twins(session, split)


def _show_progress(session: Session, split_id: str) -> None:
    share = func.sum(ModelShard.models_done) / func.sum(ModelShard.n_models)
    done = select(share).where(ModelShard.split_id == split_id).scalar_subquery()
    session.execute(
        update(Split).where(Split.id == split_id, Split.state == SplitState.PREPARING.value).values(progress=done)
    )


def _lock(session: Session, split_id: str) -> Split:
    return session.scalars(
        select(Split).where(Split.id == split_id).with_for_update().execution_options(populate_existing=True)
    ).one()


def _leave(session: Session, work: ShardWork, state: ModelShardState, **values: object) -> bool:
    if state in LEAVES:
        values |= {"finished_at": database_time()}
    return _update(session, work, state=state.value, lease_expires_at=None, **values)


def _update(session: Session, work: ShardWork, **values: Any) -> bool:
    mine = ModelShard.id == work.shard_id, ModelShard.attempt == work.attempt, _in(ModelShardState.LEASED)
    return changes_one_row(session, update(ModelShard).where(*mine).values(**values))


def _in(state: ModelShardState) -> ColumnElement[bool]:
    return ModelShard.state == state.value
