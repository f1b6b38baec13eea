"""The preparation of splits, as the database sees it: leased to a worker, reported on, finished or failed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Exists, Select, and_, exists, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from lethe.competition.file import CompetitionFile
from lethe.competition.run_limits import RetrainingCost, run_limit
from lethe.competition.section import SCHEMA_KEY, SCHEMA_VERSION
from lethe.competition.visibility import Visibility
from server import audit
from server.competitions import competitions, lifecycle, split_replacement, stalled_preparations
from server.competitions.stored_file import split_file
from server.db import clock, now
from server.jobs.leases import Jobs, Loss, claiming, take
from server.models.competition import Competition, CompetitionState, ModelShard, ModelShardState, Split, SplitState
from server.models.evaluation import Announcement
from server.notifications import dispatch
from server.queue import PREPARE_SPLIT, send_after_commit

BROKEN_OFF = "attempt {attempt} was broken off and will be made again: "
REMEDY = (
    "Mostly the host's memory was not enough: ask its operators for workers with more, or make the models or the data "
    "smaller in the file. Then prepare again; what is made already is kept"
)


@dataclass(frozen=True)
class SplitWork:
    """All that a worker needs to know to prepare a split."""

    split_id: str
    attempt: int
    visibility: str
    competition: CompetitionFile
    version: int = 1
    is_current: bool = True  # not one that is to replace the current version
    is_divided: bool = False  # its models are made, each shard by whoever asked for it
    retraining: RetrainingCost | None = None  # as it was measured, and stays
    measures_again: bool = False  # an organiser asked for it


@dataclass(frozen=True)
class PreparedSplit:
    """What a finished preparation tells."""

    manifest_sha256: str
    n_forget: int
    retraining_time_s: float
    oracle: dict[str, Any]
    retraining_cpu_s: float | None = None
    start_cpu_s: float | None = None
    device: str = "cpu"
    versions: dict[str, str] = field(default_factory=dict)
    data_difference: str = ""  # how the data now differs from what the split was made of
    doubt: str = ""  # why the measurement of its retraining may be wrong

    @property
    def retraining(self) -> RetrainingCost:
        return RetrainingCost(self.retraining_time_s, self.retraining_cpu_s, self.start_cpu_s or 0.0)


def of_known_schema() -> Select[str]:
    """Return the ids of the competitions whose data this version prepares as they say."""
    version = func.coalesce(Competition.config[SCHEMA_KEY].as_integer(), 0)
    return select(Competition.id).where(version <= SCHEMA_VERSION)


def claim(session: Session, split_id: str, *, lease_s: float, device: str = "cpu") -> SplitWork | None:
    """Lease the split's preparation, or return None if it is done, in other hands, or begun on another device."""
    free = is_unclaimed(clock(session)) & Split.competition_id.in_(of_known_schema())
    on_device = Split.device.is_(None) | (Split.device == device)
    preparing = SplitState.PREPARING.value
    split = take(session, claiming(Split, Split.id == split_id, free, on_device, state=preparing, lease_s=lease_s))
    if split is None:
        return None
    is_divided = session.scalar(select(exists().where(ModelShard.split_id == split_id)))
    return SplitWork(
        split.id,
        split.attempt,
        split.visibility,
        split_file(session.get_one(Competition, split.competition_id), split),
        version=split.version,
        is_current=split.is_current,
        is_divided=bool(is_divided),
        retraining=None if split.retraining_time_s is None else split.retraining,
        measures_again=stalled_preparations.measures_again(split),
    )


def public_splits_to_finish(session: Session, *, device: str) -> Sequence[str]:
    """Return public splits whose shards are all made and which nobody finishes: a competition waits for no more."""
    divided = exists().where(ModelShard.split_id == Split.id)
    public = (Split.visibility == Visibility.PUBLIC.value) & (Split.device == device)
    wanted = is_unclaimed(clock(session)) & public & divided
    return session.scalars(select(Split.id).where(wanted).order_by(Split.id)).all()


def heartbeat(session: Session, work: SplitWork, *, lease_s: float, stage: str, progress: float) -> bool:
    """Say that the worker lives and how far it is. Return False if the work is no longer its own."""
    return SPLITS.hold(session, work.split_id, work.attempt, lease_s=lease_s, stage=stage[:80], progress=progress)


def hand_over(session: Session, work: SplitWork) -> bool:
    """Leave the split to the next that asks. Return False if the work was lost before."""
    left = SPLITS.leave(session, work.split_id, work.attempt)
    if left:
        send_after_commit(session, PREPARE_SPLIT, work.split_id)
    return left


def let_go(session: Session, work: SplitWork, *, stage: str, device: str, versions: dict[str, str]) -> bool:
    """Leave the split to the workers that make its shards. Return False if the work was lost before."""
    values = {"stage": stage[:80], "progress": 0.0, "device": device, "versions": versions}
    return SPLITS.leave(session, work.split_id, work.attempt, **values)


def has_open_shards(split_id: str | InstrumentedAttribute[str]) -> Exists:
    """Return whether shards of the split's models are still to be made, as an SQL expression."""
    return exists().where(is_open_shard_of(split_id))


def is_open_shard_of(split_id: str | InstrumentedAttribute[str]) -> ColumnElement[bool]:
    """Return the condition that a shard of the split's models is still to be made."""
    open_states = [ModelShardState.QUEUED.value, ModelShardState.LEASED.value]
    return (ModelShard.split_id == split_id) & ModelShard.state.in_(open_states)


def waits_for_models(session: Session, work: SplitWork) -> bool:
    """Return whether the split waits for shards of its models, and nobody has begun to finish it."""
    waits = Split.id == work.split_id, Split.attempt == work.attempt, has_open_shards(Split.id)
    return bool(session.scalar(select(exists().where(*waits))))


def finish(session: Session, work: SplitWork, prepared: PreparedSplit) -> bool:
    """Mark the split ready, and with the last one the competition. Return False if the work was lost before."""
    held = SPLITS.leave(
        session,
        work.split_id,
        work.attempt,
        state=SplitState.READY.value,
        stage="",
        error="; ".join(filter(None, (prepared.data_difference, prepared.doubt))),
        progress=1.0,
        manifest_sha256=prepared.manifest_sha256,
        n_forget=prepared.n_forget,
        retraining_time_s=prepared.retraining_time_s,
        retraining_cpu_s=prepared.retraining_cpu_s,
        start_cpu_s=prepared.start_cpu_s,
        oracle=prepared.oracle,
        device=prepared.device,
        versions=prepared.versions,
        prepared_at=now(),
    )
    if held:
        split = session.get_one(Split, work.split_id, populate_existing=True)
        competition = session.get_one(Competition, split.competition_id)
        if prepared.data_difference:
            data = {"split": split.visibility, "difference": prepared.data_difference}
            audit.record(session, None, "split.data_differs", competition, data=data)
        split_replacement.activate_if_unused(session, split)
        competitions.note_prepared(session, competition)
        if work.retraining is not None and work.retraining != prepared.retraining:
            _tell_of_change(session, competition, work, prepared.retraining)
    return held


def _tell_of_change(session: Session, competition: Competition, work: SplitWork, after: RetrainingCost) -> None:
    before = work.retraining or RetrainingCost()
    words = {name: f"{cost.cpu_s or cost.time_s:.3g} s" for name, cost in (("from", before), ("to", after))}
    data = {"split": work.visibility, **words}
    audit.record(session, None, "competition.retraining_changed", competition, data=data)
    if work.visibility != Visibility.PUBLIC or lifecycle.is_hidden(competition):
        return
    limits = [run_limit(work.competition.limits, cost) for cost in (before, after)]
    old, new = (f"{limit.cpu_time_s or limit.wall_time_s:.3g} s" for limit in limits)
    title = "The limit of a run has changed"
    text = (
        f"One retraining was measured again: {words['to']} in place of {words['from']}. "
        f"A run may now take {new} in place of {old}; what was scored stays."
    )
    whole = competitions.root(session, competition)
    session.add(Announcement(competition_id=whole.id, author_id=competition.created_by, title=title, text=text))
    dispatch.notify(session, whole.id, "competition.announced", {"title": title, "text": text})


def note(session: Session, work: SplitWork, reason: str) -> bool:
    """Store why an attempt failed, for the organiser; the next attempt begins when the lease expires."""
    error = BROKEN_OFF.format(attempt=work.attempt) + reason
    return SPLITS.change(session, work.split_id, work.attempt, error=error)


def fail(session: Session, work: SplitWork, error: str) -> bool:
    """Mark the split failed, for the organiser to read why; its twin is stopped."""
    stalled_preparations.lock_both_splits(session, work.split_id)
    held = SPLITS.leave(session, work.split_id, work.attempt, state=SplitState.FAILED.value, error=error)
    if held:
        stalled_preparations.stop_twins(session, session.get_one(Split, work.split_id, populate_existing=True))
    return held


def forgotten(session: Session, at: datetime) -> list[str]:
    """Return the splits that should be in preparation but are in nobody's hands."""
    return list(session.scalars(select(Split.id).where(is_unclaimed(at))))


def is_unclaimed(at: datetime) -> ColumnElement[bool]:
    """Return the condition that a split waits: its competition is past its draft, it is not ready, and nobody holds it
    or makes shards of it.

    A lease that is over is first taken back by a sweep, which counts it.
    """
    begun = select(Competition.id).where(Competition.state != CompetitionState.DRAFT.value)
    is_free = Split.lease_expires_at.is_(None)
    return and_(
        Split.competition_id.in_(begun),
        or_(
            and_(Split.state == SplitState.PENDING.value, or_(is_free, Split.lease_expires_at < at)),
            and_(Split.state == SplitState.PREPARING.value, is_free),
        ),
        ~has_open_shards(Split.id),
    )


class _Splits(Jobs[Split]):
    table = Split
    queued = leased = SplitState.PREPARING.value
    failed = SplitState.FAILED.value

    def lock(self, session: Session, job: Split) -> None:
        stalled_preparations.lock_both_splits(session, job.id)

    def retry(self, session: Session, job: Split, loss: Loss, *, max_attempts: int) -> dict[str, Any] | None:
        return {} if job.failed_attempts + 1 < max_attempts else None

    def on_requeued(self, session: Session, job: Split, loss: Loss) -> None:
        """The sweep that takes back a split also tells of it (`forgotten`)."""

    def on_given_up(self, session: Session, job: Split, loss: Loss) -> None:
        job.error = _given_up(job)
        session.flush()
        stalled_preparations.stop_twins(session, job)


SPLITS = _Splits()


def _given_up(split: Split) -> str:
    begins = BROKEN_OFF.format(attempt=split.attempt)
    if split.error.startswith(begins):
        return f"{split.failed_attempts} attempts failed, the last one so: {split.error.removeprefix(begins)}"
    stage = f" (last at: {split.stage})" if split.stage else ""
    return f"{split.failed_attempts} workers in a row were lost while they prepared this split{stage}. {REMEDY}"
