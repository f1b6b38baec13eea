"""From a competition file to a prepared split: data, original model, retrained models, their outputs, manifest."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from lethe.competition.file import CompetitionFile
from lethe.competition.preparation_share import ShardToMake
from lethe.competition.visibility import Visibility
from lethe.data.errors import InvalidSplit
from lethe.device import memory_given_back, one_thread
from lethe.evaluation.manifest import Manifest
from lethe.evaluation.model_outputs import Kind
from lethe.preparation.preparation import Preparation
from lethe.preparation.step_cache import OnProgress, Workspace

SHARE_FROM_S = 10.0  # of estimated work; below it, handing out shards would only add waiting


def prepare_split(
    competition: CompetitionFile,
    visibility: Visibility,
    out: Path,
    *,
    device: str = "cpu",
    progress: OnProgress | None = None,
) -> Manifest:
    """Prepare one split of the competition below `out` and return its manifest.

    What an earlier call finished and is intact is kept; what is missing or damaged is made again, and reported to
    `progress`. Raises InvalidDataset, InvalidSplit, UntrainedModel or InvalidCompetitionFile, in the organiser's words.
    """
    manifest = make_split(competition, visibility, out, device=device, progress=progress)
    finish_split(manifest, out)
    return manifest


def make_split(
    competition: CompetitionFile,
    visibility: Visibility,
    out: Path,
    *,
    device: str = "cpu",
    progress: OnProgress | None = None,
) -> Manifest:
    """Do what prepare_split does but for its last step: make every file and return the manifest, unwritten.

    For whoever has to make sure that the split is still theirs before finish_split makes it a prepared one.
    """
    with _begun(competition, visibility, out, device, progress) as preparation:
        preparation.make([*preparation.first_steps(), *preparation.model_set_steps()])
        return preparation.manifest()


def finish_split(manifest: Manifest, out: Path) -> None:
    """Write the manifest, which makes the files below `out` a prepared split, and remove the working files."""
    manifest.write(out)
    Workspace.remove(out)


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
    with _begun(competition, visibility, out, device, progress) as preparation:
        if kind not in preparation.kinds:
            raise InvalidSplit(f"setup {competition.scoring.setup} has one original model, which prepare_split makes")
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
    with _begun(competition, visibility, out, device, progress) as preparation:
        preparation.make(preparation.first_steps())
        model_s = preparation.plan.model_s
        if len(preparation.kinds) * competition.n_models * model_s < share_from_s:
            return []
        missing = preparation.missing_shards()
    worth_it = len(missing) > 1 and sum(shard.n_models for shard in missing) * model_s >= share_from_s
    return missing if worth_it else []


@contextmanager
def _begun(
    competition: CompetitionFile, visibility: Visibility, out: Path, device: str, progress: OnProgress | None
) -> Iterator[Preparation]:
    """Make the data steps; afterwards nothing of the preparation is left on its device."""
    preparation = Preparation(competition, visibility, out, device=device, progress=progress or (lambda _: None))
    with memory_given_back(torch.device(device)), one_thread(torch.device(device)):
        preparation.workspace.open()
        preparation.make(preparation.data_steps())
        try:
            yield preparation
        finally:
            preparation.__dict__.pop("evaluator", None)  # made again when it is wanted
