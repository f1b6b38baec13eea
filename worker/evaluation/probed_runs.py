"""The probes on the weights that are kept of an evaluation's first runs."""

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray

from lethe.device.memory import memory_given_back
from lethe.errors import HostFault, NotFound
from lethe.evaluation.manifest import Manifest
from lethe.evaluation.model_outputs import PROBED_REFERENCES, read_probed_references
from lethe.evaluation.probes.split_probes import SplitProbes, first_models, model_files
from lethe.evaluation.shard_outputs import ShardOutputs
from lethe.metrics import InvalidMetricInput
from server.evaluations.kept_weights import weights_key
from server.models.evaluation import Shard
from server.storage import DamagedFile
from worker.context import WorkerContext
from worker.evaluation.kept_weights import State, read_kept_weights
from worker.evaluation.scoring_job import ScoringWork
from worker.evaluation.stored_results import make_again
from worker.host import graceful_shutdown
from worker.source_networks import has_source, probe_models
from worker.split_storage.local_splits import local_file, local_split

PREPARE = "keep weights in [report] (`keep_weights`), prepare the split again with `lethe competition prepare`"


def probed_runs(context: WorkerContext, work: ScoringWork, outputs: Sequence[ShardOutputs]) -> dict[str, NDArray[Any]]:
    """Return the arrays of level 4 of an evaluation's first runs: of as many as references were probed.

    outputs: of each of the work's shards. Raises InvalidMetricInput, saying what to do, where no weights are kept of
    the runs or the split's references were not probed; HostFault or DamagedSplit for a damaged file.
    """
    split_dir = local_split(context, work)
    manifest = Manifest.read(split_dir)
    if PROBED_REFERENCES not in manifest.files:
        raise InvalidMetricInput(f"the split was prepared without the weights of its references: {PREPARE}")
    n_probed = len(read_probed_references(split_dir)["retrained"]["weight_norm"])
    states = _kept(context, list(zip(work.shards, outputs, strict=True)))[:n_probed]
    files = (local_file(context, work, name) for name in model_files(manifest, "retrained"))
    if has_source(split_dir):
        return probe_models(context.settings, split_dir, states, first_models(files, len(states)))
    device = context.settings.worker_device
    with memory_given_back(torch.device(device)):
        return SplitProbes.load(split_dir, device=device).arrays(
            states, first_models(files, len(states)), on_model=_leave_if_asked
        )


def _leave_if_asked() -> None:
    """Allow a worker to stop between two models; another one computes the rest."""
    if graceful_shutdown.is_over():
        raise HostFault("the worker stops; the probes begin again elsewhere")


def _kept(context: WorkerContext, shards: Sequence[tuple[Shard, ShardOutputs]]) -> list[State]:
    try:
        states = read_kept_weights(context.storage, shards)
    except DamagedFile as error:
        damaged = [shard for shard, _ in shards if weights_key(shard.result_key or "") == error.key]
        raise make_again(context, shards[0][0].evaluation_id, damaged) from error
    except NotFound as error:
        raise InvalidMetricInput(
            f"the weights of the submission's runs are no longer stored ({error.detail}): evaluate it once more"
        ) from error
    if not states:
        raise InvalidMetricInput(
            f"no weights of the submission's runs are kept, as there are where `keep_weights` was set before it was "
            f"evaluated: {PREPARE} and evaluate the submission once more"
        )
    return states
