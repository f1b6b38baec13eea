"""What a worker gets to know of a shard, and how it reports why one failed."""

import hashlib
from dataclasses import dataclass
from typing import Any

from lethe.competition.file import RunRules
from lethe.competition.run_limits import RetrainingCost
from lethe.runtime.error_classes import ErrorClass
from server.competitions.stored_file import stored_file
from server.models.competition import Competition, Split
from server.models.evaluation import Evaluation, Shard, ShardKind
from server.models.submission import Fault, Submission
from server.queue import RoutingKey
from server.storage import split_key


def run_seed(competition_slug: str, data: str, *, split_seed: int, run: int) -> int:
    """Return the seed of run `run`, in [0, 2**63). data: public or private, of a split; `sample_data` of a smoke run.

    Runs of every submission on a split share their seeds, so two submissions differ by their code alone. Participants'
    code is told its seed. It is half of a hash of the split's seed, so only whoever could try every split seed would
    learn from it, and know the run's number: unless its file says weak_seed, a competition takes no split seed below
    64 bits.
    """
    text = f"lethe-run/{competition_slug}/{data}/{split_seed}/{run}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def sample_data(submission_id: str) -> str:
    """Return what a smoke run's seed is of. A team sees it: no other run, smoke or hidden, may have the same."""
    return f"sample/{submission_id}"


@dataclass(frozen=True)
class ClaimedShard:
    """All that a worker needs to know to run a shard."""

    shard_id: int
    attempt: int
    failed_attempts: int
    evaluation_id: str
    submission_id: str
    request_id: str
    kind: ShardKind
    first_run: int
    n_runs: int
    seeds: tuple[int, ...]
    content_sha256: str
    filename: str
    entry_point: dict[str, Any]
    device: str | None
    split_key: str
    manifest_sha256: str
    retraining_time_s: float
    competition: RunRules
    retraining_cpu_s: float | None = None
    start_cpu_s: float = 0.0

    @property
    def retraining(self) -> RetrainingCost:
        """What its runs' limit is a share of."""
        return RetrainingCost(self.retraining_time_s, self.retraining_cpu_s, self.start_cpu_s)

    @property
    def routing_key(self) -> RoutingKey:
        """Who may serve it."""
        return RoutingKey(self.device, self.competition.slug)

    @property
    def result_key(self) -> str:
        """Where the outputs of this attempt lie. A zombie may write its own file, never over the one that counts."""
        folder = f"evaluations/{self.evaluation_id}"
        if self.kind is ShardKind.SMOKE:
            return f"{folder}/sample-attempt-{self.attempt}.json"
        return f"{folder}/{self.kind.value}-{self.first_run:06d}-attempt-{self.attempt}.safetensors"


@dataclass(frozen=True)
class ShardFailure:
    """Why a shard failed. Of what happened on hidden data, its team reads what `disclosure` lets through.

    class_message: what every failure of this class says. detail_bits: what all the rest can tell at most, in bits.
    detail: for organisers only.
    """

    fault: Fault
    error_class: ErrorClass
    message: str
    run: int
    exception_type: str | None = None
    file: str | None = None
    line: int | None = None
    detail: str = ""
    class_message: str = ""
    detail_bits: float = 0.0

    def fields(self, shard: ClaimedShard) -> dict[str, object]:
        """Return what is kept of it, all of it for organisers."""
        return {
            "message": self.message,
            "run": self.run,
            "exception_type": self.exception_type,
            "file": self.file,
            "line": self.line,
            "class_message": self.class_message or self.message,
            "detail_bits": self.detail_bits,
            "on_hidden_data": shard.kind is not ShardKind.SMOKE and self.fault is not Fault.HOST,
        }


def claimed_shard(
    shard: Shard, evaluation: Evaluation, submission: Submission, split: Split, competition: Competition
) -> ClaimedShard:
    """Return what a worker gets to know of a shard. Of the competition's file that is never the seed of its splits."""
    config = stored_file(competition)
    data = sample_data(submission.id) if shard.kind == ShardKind.SMOKE.value else split.visibility
    return ClaimedShard(
        shard_id=shard.id,
        attempt=shard.attempt,
        failed_attempts=shard.failed_attempts,
        evaluation_id=evaluation.id,
        submission_id=submission.id,
        request_id=submission.request_id,
        kind=ShardKind(shard.kind),
        first_run=shard.first_run,
        n_runs=shard.n_runs,
        seeds=tuple(
            run_seed(competition.slug, data, split_seed=config.splits.seed, run=run)
            for run in range(shard.first_run, shard.first_run + shard.n_runs)
        ),
        content_sha256=submission.content_sha256,
        filename=submission.filename,
        entry_point=submission.entry_point,
        device=split.device,
        split_key=split_key(competition.slug, split.visibility, split.version),
        manifest_sha256=split.manifest_sha256 or "",
        retraining_time_s=split.retraining_time_s or 0.0,
        retraining_cpu_s=split.retraining_cpu_s,
        start_cpu_s=split.start_cpu_s or 0.0,
        competition=RunRules.of(config),
    )
