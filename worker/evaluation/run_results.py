"""What the runs of a shard have given, and how one that gave nothing ended."""

import hashlib
from dataclasses import dataclass, field

import numpy as np

from lethe.errors import HostFault, InvalidSubmission
from lethe.evaluation.shard_outputs import RunOutputs, ShardOutputs
from lethe.runtime.error_classes import Blame
from sandbox.launcher import RunResult
from sandbox.run_request import readable_log
from sandbox.verdict import Verdict
from worker.evaluation.stored_results import KeptWeights
from worker.jobs import Stopped


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
