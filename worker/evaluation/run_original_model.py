"""The original model that each run starts from: the split's one, or in setup reuse-n-n the run's own."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from lethe.evaluation.manifest import Manifest, require_whole
from lethe.evaluation.model_outputs import find_place, read_original
from lethe.metrics.scoring.protocols import EvaluationSetup, SetupPlan
from lethe.runtime.weights_layout import ORIGINAL_MODEL
from server.evaluations.claimed_shard import ClaimedShard
from server.models.evaluation import ShardKind
from worker.context import RunningContext


@contextmanager
def own_original(context: RunningContext, shard: ClaimedShard, split_dir: Path, *, run: int) -> Iterator[Path | None]:
    """Yield a run's own original model as a file, None where all start from one. Raises as reading a split does."""
    setup = EvaluationSetup(shard.competition.scoring.setup)
    if setup is EvaluationSetup.REUSE_N_1:
        yield None
        return
    path = context.stage_dir / f"{secrets.token_hex(8)}.safetensors"
    try:
        path.write_bytes(_original_of_run(context, shard, split_dir, run=run))
        path.chmod(0o444)
        yield path
    finally:
        path.unlink(missing_ok=True)


def _original_of_run(context: RunningContext, shard: ClaimedShard, split_dir: Path, *, run: int) -> bytes:
    if shard.kind is ShardKind.SMOKE:
        return (split_dir / "sample" / ORIGINAL_MODEL).read_bytes()
    setup = EvaluationSetup(shard.competition.scoring.setup)
    index = SetupPlan(setup, n_models=shard.competition.n_models).original_of_run(run)
    name, position = find_place(_manifest(split_dir, shard.manifest_sha256), index)
    context.artefacts.split_file(shard, name)
    _check(split_dir, shard.manifest_sha256, name)
    return read_original(split_dir, name, position)


@lru_cache(maxsize=8)
def _manifest(split_dir: Path, manifest_sha256: str) -> Manifest:  # noqa: ARG001 (names the content)
    return Manifest.read(split_dir)


@lru_cache(maxsize=256)
def _check(split_dir: Path, manifest_sha256: str, name: str) -> None:  # noqa: ARG001 (names the content)
    """Hash a file of models once for this process; a DamagedSplit is not remembered."""
    require_whole(split_dir, only=(name,))
