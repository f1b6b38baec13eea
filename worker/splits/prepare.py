"""From a competition file to a prepared split: data, original model, retrained models, their outputs, manifest."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from server.competitions.config_file import CompetitionFile
from server.competitions.model_shards import ShardToMake
from worker.splits.cut import Visibility
from worker.splits.device_memory import memory_given_back
from worker.splits.errors import InvalidSplit
from worker.splits.manifest import Manifest
from worker.splits.outputs import Kind
from worker.splits.precision import one_thread
from worker.splits.preparation import Preparation
from worker.splits.workspace import OnProgress, Step

SHARE_FROM_S = 120.0  # of estimated work; below it, handing out shards would only add waiting


def prepare_split(
    competition: CompetitionFile,
    visibility: Visibility,
    out: Path,
    *,
    device: str = "cpu",
    progress: OnProgress | None = None,
) -> Manifest:
    """Prepare one split of the competition below `out` and return its manifest.

    What an earlier call finished and is whole is kept; what is missing or damaged is made anew, and reported to
    `progress`. Raises InvalidDataset, InvalidSplit, UntrainedModel or InvalidCompetitionFile, in the organiser's words.
    """
    preparation = Preparation(competition, visibility, out, device=device, progress=progress or (lambda _: None))
    with _begun(preparation):
        _make(preparation, [*preparation.first_steps(), *preparation.model_set_steps()])
        return preparation.finish()


def prepare_shard(
    competition: CompetitionFile,
    visibility: Visibility,
    out: Path,
    *,
    kind: Kind,
    shard: int,
    device: str = "cpu",
    progress: OnProgress | None = None,
) -> None:
    """Train and evaluate one shard of a split's retrained models (or the oracle's, or the runs' own originals).

    It is the work of one process of many. The data must be there: the first call of all is `begin_split`. When every
    shard is made, prepare_split takes them over and completes the split. Raises InvalidSplit for originals where the
    competition's setup has none.
    """
    preparation = Preparation(competition, visibility, out, device=device, progress=progress or (lambda _: None))
    if kind == "originals" and not preparation.has_originals:
        raise InvalidSplit(f"setup {competition.metric.setup} has one original model, which prepare_split makes")
    with _begun(preparation):
        if kind == "oracle":
            preparation.shards(kind).outputs(shard)
        else:
            preparation.run(preparation.model_steps(kind)[shard])


def begin_split(
    competition: CompetitionFile,
    visibility: Visibility,
    out: Path,
    *,
    device: str = "cpu",
    progress: OnProgress | None = None,
    share_from_s: float = SHARE_FROM_S,
) -> list[ShardToMake]:
    """Make what comes before the many models: data, sample, original model. Return the shards that others may make.

    There are none where all that is missing takes one process less than `share_from_s` seconds: prepare_split makes it.
    Raises what prepare_split raises.
    """
    preparation = Preparation(competition, visibility, out, device=device, progress=progress or (lambda _: None))
    with _begun(preparation):
        _make(preparation, preparation.first_steps())
        model_s = preparation.plan.model_s
        if len(preparation.kinds) * competition.n_models * model_s < share_from_s:
            return []
        missing = preparation.missing_shards()
    worth_it = len(missing) > 1 and sum(shard.n_models for shard in missing) * model_s >= share_from_s
    return missing if worth_it else []


@contextmanager
def _begun(preparation: Preparation) -> Iterator[None]:
    """Make the data steps; afterwards nothing of the preparation is left on its device."""
    device = torch.device(preparation.device)
    with memory_given_back(device), one_thread(device):
        preparation.workspace.open()
        _make(preparation, preparation.data_steps())
        try:
            yield
        finally:
            preparation.let_go_of_device()


def _make(preparation: Preparation, steps: Sequence[Step]) -> None:
    for step in steps:
        preparation.run(step)
