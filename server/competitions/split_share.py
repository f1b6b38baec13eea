"""How much of a split's preparation is done: by one worker, or by those that share its models."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from lethe.competition.file import CompetitionFile
from lethe.competition.preparation_share import models_share, preparation_share
from server.competitions import service
from server.competitions.stored_file import stored_file
from server.models.competition import Competition, Split, SplitState
from server.models.model_shard import ModelShard, ModelShardState


def share_done(split: Split, file: CompetitionFile, *, shards: Sequence[ModelShard]) -> float:
    """Return a number from 0 to 1. shards: of the split's models, none where one worker makes all of it."""
    if split.state == SplitState.READY:
        return 1.0
    live = [shard for shard in shards if shard.state != ModelShardState.CANCELLED]
    if live:
        return models_share(sum(shard.models_done for shard in live) / sum(shard.n_models for shard in live))
    return preparation_share(file, stage=split.stage, progress=split.progress)


def share_of_competition(session: Session, competition: Competition) -> float:
    """Return how much of all work on a competition's splits is done, 0 to 1."""
    splits, file = service.splits(session, competition), stored_file(competition)
    shards = service.model_shards(session, splits)
    own = [[shard for shard in shards if shard.split_id == split.id] for split in splits]
    done = [share_done(split, file, shards=found) for split, found in zip(splits, own, strict=True)]
    return sum(done) / max(len(done), 1)
