"""A preparation that waits for a kind of worker which does not come: the organiser sees why, and may let go of it.

What began a split's models must make all of them (`model_shards.claim`). So one that nobody works on for a while says
so in its stage, which every face shows.
"""

from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server.models.competition import Split, SplitState
from server.models.preparing import ModelShard, ModelShardState
from server.workers.fitness import minor_version

COMES_WITHIN = timedelta(minutes=1)  # messages go out every ten seconds; a worker that fits and is free takes one
WAITS = "no {kind} worker comes: start one, or prepare --any-device"


def training_stage(n_models: int, n_parts: int) -> str:
    return f"training {n_models} models in {n_parts} parts"


def tell(session: Session, at: datetime) -> None:
    """Write into the stage of each divided split whether somebody makes it, or which kind of worker it waits for."""
    begun = select(Split).where(Split.state == SplitState.PREPARING.value, Split.device.is_not(None))
    for split in session.scalars(begun):
        n_parts, n_models, n_held, queued_at, finished_at = session.execute(
            select(
                func.count(),
                func.sum(ModelShard.n_models),
                func.count().filter(ModelShard.state == ModelShardState.LEASED.value),
                func.max(ModelShard.queued_at),
                func.max(ModelShard.finished_at),
            ).where(ModelShard.split_id == split.id)
        ).one()
        if not n_parts:
            continue
        waits = WAITS.format(kind=f"{split.device}, torch {minor_version(split.versions.get('torch'))}")
        held = n_held > 0 or (split.lease_expires_at is not None and split.lease_expires_at > at)
        if not held and max(filter(None, (queued_at, finished_at))) < at - COMES_WITHIN:
            split.stage = waits
        elif split.stage == waits:
            split.stage = training_stage(n_models, n_parts)


def is_waiting(split: Split) -> bool:
    """Return whether the split's stage says that no worker of its kind comes."""
    return split.state == SplitState.PREPARING and split.stage.endswith(WAITS.rpartition("{kind}")[2])


def let_go(split: Split) -> None:
    """Leave an unfinished split to whatever worker comes next; it begins anew what another kind has begun."""
    split.state, split.stage, split.error, split.progress = SplitState.PENDING.value, "", "", 0.0
    split.attempt, split.lease_expires_at = split.attempt + 1, None
    split.device, split.versions = None, {}
