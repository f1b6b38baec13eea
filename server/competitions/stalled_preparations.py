"""Preparations that wait for a missing kind of worker, or were stopped: the organiser sees why, and may release them.

What began a split's models must make all of them (`model_shards.claim`). So one that nobody works on for a while says
so in its stage, which every face shows.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server import audit, queue
from server.audit import EventFilter
from server.competitions import competition_repository, lifecycle
from server.db import clock
from server.errors import Conflict
from server.models.account import Account
from server.models.competition import Competition, CompetitionState, ModelShard, ModelShardState, Split, SplitState
from server.models.worker import minor_version

UNFINISHED = (SplitState.PENDING.value, SplitState.PREPARING.value)


def lock_both_splits(session: Session, split_id: str) -> Sequence[Split]:
    """Return both splits of a competition and of its tasks, locked in a fixed order to prevent deadlocks."""
    root = func.coalesce(Competition.parent_id, Competition.id)
    split = select(root).join(Split, Split.competition_id == Competition.id).where(Split.id == split_id)
    competitions = select(Competition.id).where(root == split.scalar_subquery())
    every = select(Split).where(Split.competition_id.in_(competitions)).order_by(Split.id).with_for_update()
    return session.scalars(every.execution_options(populate_existing=True)).all()


def stop_twins(session: Session, failed: Split) -> None:
    """End the first preparation of the other splits: the file has to change."""
    competition = session.get_one(Competition, failed.competition_id)
    if competition.state != CompetitionState.PREPARING:
        return
    for twin in lock_both_splits(session, failed.id):
        if twin.id != failed.id and twin.state in UNFINISHED:
            let_go(twin)
            twin.state = SplitState.FAILED.value
            of_task = f" of the task {competition.task_name}" if competition.task_name else ""
            twin.error = f"stopped, since the {failed.visibility} split{of_task} failed: {failed.error}"
            competition_repository.forget_model_shards(session, twin.id)


def cancel(session: Session, competition: Competition, *, actor: Account) -> Competition:
    """Call a first preparation off; the competition is a draft again. Raises Conflict once it has ended."""
    lifecycle.require_no_task(competition)
    competition = competition_repository.locked(session, competition.id)
    if competition.state == CompetitionState.DRAFT:
        return competition
    if competition.state != CompetitionState.PREPARING:
        raise Conflict(f"{competition.slug} is {competition.state}; only a preparation under way can be cancelled")
    for split in competition_repository.splits(session, competition.id):
        if split.state != SplitState.READY:
            let_go(split)
            competition_repository.forget_model_shards(session, split.id)
    lifecycle.move(session, competition, CompetitionState.DRAFT, actor=actor, reason="the preparation was cancelled")
    session.flush()
    return competition


COMES_WITHIN = timedelta(minutes=1)  # messages go out every ten seconds; a worker that fits and is free takes one
WAITS = "no {kind} worker comes: start one, or prepare --any-device"
HELD_BACK = "waits: submissions go first"
CHECKING = "checking every file"
MEASURING = "checking every file, and measuring one retraining again"
CHECK_WAITS = "no {device} worker comes to check every file: start one"


def training_stage(n_models: int, n_parts: int) -> str:
    return f"training {n_models} models in {n_parts} parts"


def check(split: Split, at: datetime, *, measure: bool = False) -> None:
    """Queue a check of every file of a ready split. measure: also measure one retraining."""
    stage = MEASURING if measure else CHECKING
    split.state, split.stage, split.progress, split.failed_attempts = SplitState.PENDING.value, stage, 0.0, 0
    split.lease_expires_at = at - timedelta(seconds=1)  # over already, and since then in nobody's hands


def notify(session: Session, at: datetime, *, held_back: Collection[str] = ()) -> None:
    """Write into the stage of each split that only one kind of worker may take which kind it waits for, if none comes.

    held_back: the splits whose models wait for submissions.
    A divided split's stage says that somebody makes it as soon as somebody does.
    """
    _tell_of_checks(session, at)
    begun = select(Split).where(Split.state == SplitState.PREPARING.value, Split.device.is_not(None))
    shards = {split: _count_shards(session, split) for split in session.scalars(begun)}
    at_work = {_kind(split) for split, counts in shards.items() if counts.n_held}
    for split, counts in shards.items():
        if not counts.n_parts:
            continue
        waits = WAITS.format(kind=_kind(split))
        # Who is at another split's models comes to these afterwards.
        held = _kind(split) in at_work or (split.lease_expires_at is not None and split.lease_expires_at > at)
        if split.id in held_back and not counts.n_held:
            split.stage = HELD_BACK
        elif not held and max(filter(None, (counts.queued_at, counts.finished_at))) < at - COMES_WITHIN:
            split.stage = waits
        elif split.stage in (waits, HELD_BACK):
            split.stage = training_stage(counts.n_models, counts.n_parts)


class _Shards(NamedTuple):
    """The shards of one split's models. queued_at, finished_at: the last ones."""

    n_parts: int
    n_models: int
    n_held: int
    queued_at: datetime | None
    finished_at: datetime | None


def _count_shards(session: Session, split: Split) -> _Shards:
    row = session.execute(
        select(
            func.count(),
            func.sum(ModelShard.n_models),
            func.count().filter(ModelShard.state == ModelShardState.LEASED.value),
            func.max(ModelShard.queued_at),
            func.max(ModelShard.finished_at),
        ).where(ModelShard.split_id == split.id)
    ).one()
    return _Shards(*row)


def _kind(split: Split) -> str:
    """Return which workers may go on with a split that was begun."""
    return f"{split.device}, torch {minor_version(split.versions.get('torch'))}"


def _tell_of_checks(session: Session, at: datetime) -> None:
    """Letting go of the kind is no way out here: another kind would make other models than those in use."""
    asked = Split.state == SplitState.PENDING.value, Split.device.is_not(None), Split.stage.in_((CHECKING, MEASURING))
    for split in session.scalars(select(Split).where(*asked, Split.lease_expires_at < at - COMES_WITHIN)):
        waits = CHECK_WAITS.format(device=split.device)
        split.stage = f"{waits}; then one retraining is measured again" if split.stage == MEASURING else waits


def measures_again(split: Split) -> bool:
    """Return whether an organiser asked for another measurement, and no worker has begun it."""
    return split.stage.endswith("measuring one retraining again") or split.stage.endswith("is measured again")


def is_waiting(split: Split) -> bool:
    """Return whether the split's stage says that no worker of its kind comes."""
    return split.state == SplitState.PREPARING and split.stage.endswith(WAITS.rpartition("{kind}")[2])


def let_go(split: Split) -> None:
    """Leave an unfinished split to whatever worker comes next; it begins again what another kind has begun."""
    split.state, split.stage, split.error, split.progress = SplitState.PENDING.value, "", "", 0.0
    split.attempt, split.failed_attempts, split.lease_expires_at = split.attempt + 1, 0, None
    split.device, split.versions = None, {}


DAMAGED = "split.damaged"
GRACE_PERIOD = timedelta(minutes=1)  # after a preparation: who began to read before it finds another manifest
CHECKS_PER_HOUR = 3  # of a competition: what is damaged again and again has a cause that no check removes


def check_again(session: Session, split_id: str, *, reason: str) -> bool:
    """Queue the check of a ready split. Return False where it waits for one already, was just made, or is over."""
    split = session.get_one(Split, split_id, with_for_update=True, populate_existing=True)
    competition = session.get_one(Competition, split.competition_id)
    at = clock(session)
    is_new = split.prepared_at is not None and split.prepared_at > at - GRACE_PERIOD
    if split.state != SplitState.READY or is_new or lifecycle.is_revealed(competition):
        return False
    lately = EventFilter(competition_id=competition.id, action=DAMAGED, since=at - timedelta(hours=1))
    if len(audit.events(session, lately, limit=CHECKS_PER_HOUR)) >= CHECKS_PER_HOUR:
        return False
    check(split, at)
    competition_repository.forget_model_shards(session, split.id)
    data = {"split": split.visibility, "found": reason}
    audit.record(session, None, DAMAGED, competition, data=data)
    queue.send_after_commit(session, queue.PREPARE_SPLIT, split.id)
    return True
