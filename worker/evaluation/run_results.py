"""What the runs of a shard have given, and how one that gave nothing ended."""

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
import safetensors.torch
import structlog
import torch
from torch import Tensor

from lethe.errors import HostFault, InvalidSubmission, NotFound
from lethe.evaluation.manifest import Manifest, require_whole
from lethe.evaluation.model_outputs import ORIGINAL, find_place, read_integer_buffers, read_original
from lethe.evaluation.shard_outputs import RunOutputs, ShardOutputs
from lethe.metrics.scoring.protocols import EvaluationSetup, SetupPlan
from lethe.runtime.error_classes import Blame
from lethe.runtime.weights_layout import ORIGINAL_MODEL
from sandbox.launcher import RunResult
from sandbox.run_request import readable_log
from sandbox.verdict import Verdict
from server.evaluations import rerun
from server.evaluations.claimed_shard import ClaimedShard
from server.evaluations.results import weights_key
from server.models.evaluation import Shard, ShardKind
from server.storage import DamagedFile, Storage
from worker.context import RunningContext, WorkerContext
from worker.jobs import Stopped

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


@dataclass
class Done:
    """What the runs of a shard have given so far."""

    outputs: list[RunOutputs] = field(default_factory=list)
    wall_times_s: list[float] = field(default_factory=list)
    cpu_times_s: list[float] = field(default_factory=list)  # of each run; empty of a notebook's models
    logs: list[tuple[int, str]] = field(default_factory=list)
    kept: KeptWeights = field(default_factory=KeptWeights)
    sample_answers: bytes | None = None  # of a language model's run on the sample

    @property
    def runs(self) -> int:
        return len(self.wall_times_s)

    @property
    def wall_time_s(self) -> float:
        return sum(self.wall_times_s)

    def arrays(self, *, weights: bytes | None) -> ShardOutputs:
        return ShardOutputs.of_runs(
            self.outputs,
            wall_time_s=np.array(self.wall_times_s, dtype=np.float64),
            cpu_time_s=np.array(self.cpu_times_s, dtype=np.float64) if self.cpu_times_s else None,
            weights_sha256=None if weights is None else hashlib.sha256(weights).hexdigest(),
        )


class RunFailed(Exception):
    """A run ended without weights."""

    def __init__(self, run: int, verdict: Verdict) -> None:
        super().__init__(verdict.message)
        self.run = run
        self.verdict = verdict


def raise_unless_good(result: RunResult, run: int, done: Done, *, keep_log: bool) -> None:
    """Keep what a run printed where it is wanted or the run failed. Raises what `raise_fault` does."""
    if keep_log or result.verdict.fault is not Blame.NONE:
        done.logs.append((run, readable_log(result.log, max_chars=len(result.log))))
        done.logs.extend((run, note) for note in result.notes)
    raise_fault(result.verdict, run, host_error=result.facts.host_error)


def raise_fault(verdict: Verdict, run: int, *, host_error: str = "") -> None:
    """Raise Stopped, HostFault or RunFailed for a run that did not end well."""
    if verdict.fault is Blame.STOPPED:
        raise Stopped
    if verdict.fault is Blame.HOST:
        raise HostFault(f"run {run}: {host_error or verdict.message}")
    if verdict.fault is not Blame.NONE:
        raise RunFailed(run, verdict)


def without_outputs(error: InvalidSubmission, run: int) -> RunFailed:
    """Return the failure of a run whose models give no outputs that count."""
    verdict = Verdict(outcome="failed", fault=Blame.PARTICIPANT, error_class=error.slug, message=f"{error.detail}.")
    return RunFailed(run, verdict)
