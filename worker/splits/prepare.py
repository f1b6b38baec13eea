"""From a competition file to a prepared split: data, original model, retrained models, their outputs, manifest."""

from pathlib import Path

import torch

from server.competitions.config_file import CompetitionFile
from worker.splits.cut import Visibility
from worker.splits.errors import InvalidSplit
from worker.splits.manifest import Manifest
from worker.splits.outputs import Kind
from worker.splits.precision import one_thread
from worker.splits.preparation import Preparation
from worker.splits.workspace import OnProgress


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
    with one_thread(torch.device(device)):
        preparation.workspace.open()
        for step in preparation.steps():
            preparation.run(step)
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

    It is the work of one process of many. The data must be there: the first call of all is `prepare_data`. When every
    shard is made, prepare_split takes them over and completes the split. Raises InvalidSplit for originals where the
    competition's setup has none.
    """
    preparation = Preparation(competition, visibility, out, device=device, progress=progress or (lambda _: None))
    if kind == "originals" and not preparation.has_originals:
        raise InvalidSplit(f"setup {competition.metric.setup} has one original model, which prepare_split makes")
    with one_thread(torch.device(device)):
        preparation.workspace.open()
        for step in preparation.data_steps():
            preparation.run(step)
        if kind == "oracle":
            preparation.shards(kind).outputs(shard)
        else:
            preparation.run(preparation.model_steps(kind)[shard])


def prepare_data(
    competition: CompetitionFile,
    visibility: Visibility,
    out: Path,
    *,
    device: str = "cpu",
    progress: OnProgress | None = None,
) -> int:
    """Cut the data of a split and return into how many shards each set of models is divided."""
    preparation = Preparation(competition, visibility, out, device=device, progress=progress or (lambda _: None))
    preparation.workspace.open()
    for step in preparation.data_steps():
        preparation.run(step)
    return preparation.plan.n_shards
