"""How much of a split's preparation is done, by one worker or by those that share its models; the report at its end."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic import ValidationError
from sqlalchemy.orm import Session

from lethe.competition.file import CompetitionFile
from lethe.competition.preparation_share import SplitReport, models_share, preparation_share
from lethe.competition.visibility import Visibility
from lethe.errors import HostFault, NotFound
from server.competitions import competitions
from server.competitions.stored_file import stored_file
from server.models.competition import Competition, ModelShard, ModelShardState, Split, SplitState
from server.storage import Storage, split_key

PLACES = ("report.json", "work/shared/report.json")  # published, or carried between hosts that still train its models


def get_split_report(storage: Storage, competition: Competition, split: Split) -> SplitReport:
    """Return the report of a split whose data is cut. Raises NotFound before that, HostFault if it is damaged."""
    report = find_split_report(storage, competition, split)
    if report is None:
        raise NotFound(f"The {split.visibility} split of {competition.slug} has no report yet: its data is not cut")
    return report


def find_split_report(storage: Storage, competition: Competition, split: Split) -> SplitReport | None:
    """Return the report of a split, None before its data is cut. Raises HostFault if it is damaged."""
    folder = split_key(competition.slug, split.visibility, split.version)
    key = next((f"{folder}/{place}" for place in PLACES if storage.exists(f"{folder}/{place}")), None)
    if key is None:
        return None
    try:
        return SplitReport.model_validate_json(storage.read(key))
    except ValidationError as error:
        raise HostFault(f"{key} is damaged: prepare {competition.slug} again to have it made again") from error


MIN_SHARE_FOR_RATE = 0.02  # of the models: before that, a rate is chance


def share_done(split: Split, file: CompetitionFile, *, shards: Sequence[ModelShard]) -> float:
    """Return a number from 0 to 1. shards: of the split's models, none where one worker makes all of it."""
    if split.state == SplitState.READY:
        return 1.0
    if split.state == SplitState.PENDING:  # its stage says what it waits for
        return 0.0
    live = [shard for shard in shards if shard.state != ModelShardState.CANCELLED]
    if live:
        return models_share(sum(shard.models_done for shard in live) / sum(shard.n_models for shard in live))
    return preparation_share(file, stage=split.stage, progress=split.progress)


def time_left_s(shards: Sequence[ModelShard], at: datetime) -> float | None:
    """Return how long the models of these shards may take, if they go on as since the first was begun; None while too
    few are made to tell, or there are none."""
    live = [shard for shard in shards if shard.state != ModelShardState.CANCELLED]
    total, done = sum(shard.n_models for shard in live), sum(shard.models_done for shard in live)
    begun = [shard.claimed_at for shard in live if shard.claimed_at is not None]
    if not begun or done < MIN_SHARE_FOR_RATE * total:
        return None
    return (at - min(begun)).total_seconds() / done * (total - done)


@dataclass(frozen=True)
class Opening:
    """How much of what the opening waits for is done, 0 to 1, and how long the rest may take; None: not known yet."""

    competition: Competition
    share: float
    left_s: float | None


def opening_of(session: Session, competition: Competition, at: datetime) -> Opening:
    """Return how far the preparation of a competition is that opens with its public splits, or with all."""
    file = stored_file(competition)
    opens_with = {each.slug: each.splits.opens_with for each in file.evaluated}
    slugs = {each.id: each.slug for each in competitions.evaluated(session, [competition])}
    splits = [
        split
        for split in competitions.splits(session, competition)
        if split.visibility == Visibility.PUBLIC or opens_with[slugs[split.competition_id]] == "both"
    ]
    shards = competitions.model_shards(session, splits)
    own = [[shard for shard in shards if shard.split_id == split.id] for split in splits]
    done = [share_done(split, file, shards=of_split) for split, of_split in zip(splits, own, strict=True)]
    return Opening(competition, sum(done) / max(len(done), 1), time_left_s(shards, at))
