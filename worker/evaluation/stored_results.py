"""The stored outputs of an evaluation's runs. What is damaged or lost is made again."""

from collections.abc import Sequence

import structlog

from lethe.errors import HostFault, NotFound
from lethe.evaluation.shard_outputs import ShardOutputs
from server.evaluations import damaged_results
from server.models.evaluation import Shard
from server.storage import DamagedFile
from worker.context import WorkerContext

log = structlog.get_logger()


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
        queued = damaged_results.make_again(session, evaluation_id, lost)
    keys = ", ".join(str(shard.result_key) for shard in shards)
    return ResultsMadeAgain(f"{keys}: damaged or lost; the runs of {queued} shards are made again")
