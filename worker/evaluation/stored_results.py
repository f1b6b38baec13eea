"""The stored outputs of an evaluation's runs. What is damaged or lost is made again."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import safetensors.torch
import structlog
import torch
from torch import Tensor

from lethe.errors import HostFault, NotFound
from lethe.evaluation.model_outputs import ORIGINAL, read_integer_buffers
from lethe.evaluation.shard_outputs import ShardOutputs
from server.evaluations import rerun
from server.evaluations.results import weights_key
from server.models.evaluation import Shard
from server.storage import DamagedFile, Storage
from worker.context import WorkerContext

log = structlog.get_logger()
State = dict[str, Tensor]


class ResultsMadeAgain(HostFault):
    """Outputs are damaged or lost; their runs are in the queue again."""


def read_results(context: WorkerContext, evaluation_id: str, shards: Sequence[Shard]) -> list[ShardOutputs]:
    """Return the outputs of each shard. Raises ResultsMadeAgain."""
    found, damaged = [], []
    for shard in shards:
        try:
            data = context.storage.read_verified(shard.result_key or "", shard.result_sha256 or "")
        except (DamagedFile, NotFound) as error:
            log.error("outputs of runs are damaged or lost", shard=shard.id, reason=str(error))  # noqa: TRY400
            damaged.append(shard)
        else:
            found.append(ShardOutputs.from_bytes(data))
    if damaged:
        raise make_again(context, evaluation_id, damaged)
    return found


def make_again(context: WorkerContext, evaluation_id: str, shards: Sequence[Shard]) -> ResultsMadeAgain:
    """Queue the runs of these shards again. Return what says so."""
    with context.database.write() as session:
        lost = [(shard.id, shard.result_sha256 or "") for shard in shards]
        queued = rerun.make_again(session, evaluation_id, lost)
    keys = ", ".join(str(shard.result_key) for shard in shards)
    return ResultsMadeAgain(f"{keys}: damaged or lost; the runs of {queued} shards are made again")


@dataclass
class KeptWeights:
    """The weights of a shard's runs below `n_kept`, in the order of the runs."""

    n_kept: int = 0
    split_dir: Path = Path()
    states: list[State] = field(default_factory=list)

    def add(self, run: int, weights: bytes, *, integer_buffers: Mapping[str, Tensor] | None = None) -> None:
        """Keep the run's weights if it is one of the first. integer_buffers: of its own original model."""
        if run < self.n_kept:
            given = (
                read_integer_buffers(self.split_dir / ORIGINAL) if integer_buffers is None else dict(integer_buffers)
            )
            self.states.append(safetensors.torch.load(weights) | given)

    def to_bytes(self) -> bytes | None:
        """Return a safetensors file with the models along the first axis of each tensor; None if none are kept."""
        if not self.states:
            return None
        return safetensors.torch.save(
            {name: torch.stack([state[name] for state in self.states]) for name in self.states[0]}
        )


def read_kept_weights(storage: Storage, shards: Iterable[tuple[Shard, ShardOutputs]]) -> list[State]:
    """Return the weights kept of an evaluation's first runs, of all its shards in order. Raises HostFault."""
    states: list[State] = []
    for shard, outputs in shards:
        if outputs.weights_sha256 is None:
            break  # of later runs none are kept
        data = storage.read_verified(weights_key(shard.result_key or ""), outputs.weights_sha256)
        stacked = safetensors.torch.load(data)
        sizes = {tensor.shape[0] for tensor in stacked.values()}
        if len(sizes) != 1:
            raise HostFault(f"the weights kept of shard {shard.id} are of unequal numbers of models")
        states += [{name: tensor[index] for name, tensor in stacked.items()} for index in range(sizes.pop())]
    return states
