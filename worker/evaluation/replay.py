"""Runs a scored evaluation again on what is stored, and compares every bit. Nothing that is stored is changed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lethe.competition.file import CompetitionFile
from lethe.competition.visibility import Visibility
from lethe.errors import HostFault, NotFound
from lethe.evaluation.ranking import ORACLE, score_outputs, secret_attack_seed
from lethe.evaluation.shard_outputs import ShardOutputs, join
from lethe.metrics.scoring.attacks.family import SCORER_VERSION
from lethe.metrics.scoring.score import ModelOutputs
from lethe.runtime.error_classes import OF_THE_MACHINE
from server.competitions.stored_file import stored_file
from server.config import Settings
from server.db import Database
from server.disclosure.gate import show_score
from server.errors import Conflict
from server.evaluations import evaluation_repository, lease_repository
from server.evaluations.claimed_shard import ClaimedShard, ShardFailure, claimed_shard
from server.models.evaluation import Shard
from server.storage import Storage
from worker.context import RunningContext
from worker.evaluation.scoring_job import compared_with, oracle_score, rank_outputs
from worker.evaluation.shard_pipeline import run_shard
from worker.host.worker_info import worker_facts
from worker.split_storage.local_splits import StoredArtefacts
from worker.split_storage.split_cache import SplitCache
from worker.transport import Logs

ATTEMPTS = 3  # at a shard that this machine could not run
COMPARED = ("confidences", "retain_accuracy", "test_accuracy")  # times are never the same


@dataclass(frozen=True)
class Stored:
    """A scored evaluation, as the database holds it."""

    submission_id: str
    visibility: str
    score: float
    scorer_version: str
    content_sha256: str
    manifest_sha256: str
    split_device: str | None
    split_versions: Mapping[str, Any]
    file: CompetitionFile
    shards: tuple[tuple[ClaimedShard, str, str], ...]  # with the key and the hash of what it gave


@dataclass
class Replayed:
    """The result of a replay. score: None if a run failed. differences: what has changed, as sentences."""

    stored: Stored
    score: float | None = None
    runs: int = 0
    different_runs: list[int] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        """Whether the score has the same bits, and so has every model's outputs."""
        return self.score is not None and self.score.hex() == self.stored.score.hex() and not self.different_runs


@dataclass
class LocalLeases:
    """Replaces the leases of a worker: keeps a shard's result in memory."""

    result: bytes | None = None
    failure: ShardFailure | None = None
    given_back: str = ""

    def note_controls(self, shard: ClaimedShard, controls: dict[str, Any]) -> None:
        """Controls are recorded with attempts, and this is none."""

    def heartbeat(self, shard: ClaimedShard, *, runs_done: int, wall_time_s: float) -> bool:
        return True

    def close(
        self, shard: ClaimedShard, result: bytes | None, logs: Logs, *, wall_time_s: float, weights: bytes | None = None
    ) -> bool:
        self.result = result
        return True

    def fail(self, shard: ClaimedShard, failure: ShardFailure, logs: Logs, *, runs_done: int) -> bool:
        self.failure = failure
        return True

    def give_back(self, shard: ClaimedShard, *, reason: str, runs_done: int) -> bool:
        self.given_back = reason
        return True

    def hand_over(self, shard: ClaimedShard, *, runs_done: int) -> bool:
        return self.give_back(shard, reason="the replay was stopped", runs_done=runs_done)

    def end_if_over_time(self, shard: ClaimedShard, *, runs_done: int) -> bool:
        return self.give_back(shard, reason="the replay was stopped", runs_done=runs_done)


def not_repeated(run: int, error_class: str, message: str) -> str:
    """Return that a run met a limit of this machine, so that nothing is known about the score."""
    return (
        f"run {run} could not be repeated on this machine, which says nothing about the score: {error_class}: {message}"
    )


def stored_score(database: Database, submission_id: str, visibility: Visibility) -> Stored:
    """Return what a submission was scored with on one split. Raises NotFound, or Conflict if there is no score."""
    with database.read() as session:
        evaluation = evaluation_repository.current_evaluation(session, submission_id, visibility.value)
        if evaluation is None:
            raise NotFound(f"Submission {submission_id!r} was not evaluated on the {visibility} split here")
        score = evaluation_repository.get_score(session, evaluation, visibility.value)
        if score is None:
            raise Conflict(
                f"Submission {submission_id} is {evaluation.state} on the {visibility} split; it has no score"
            )
        scored, submission, split, competition = lease_repository.context(session, evaluation.id)

        def given(shard: Shard) -> tuple[ClaimedShard, str, str]:
            claimed = claimed_shard(shard, scored, submission, split, competition)
            return claimed, shard.result_key or "", shard.result_sha256 or ""

        return Stored(
            submission_id=submission.id,
            visibility=split.visibility,
            score=score.final_score,
            scorer_version=score.scorer_version,
            content_sha256=submission.content_sha256,
            manifest_sha256=split.manifest_sha256 or "",
            split_device=split.device,
            split_versions=split.versions,
            file=stored_file(competition),
            shards=tuple(map(given, evaluation_repository.shards_of_runs(session, scored.id))),
        )


def replay(settings: Settings, storage: Storage, stored: Stored) -> Replayed:
    """Run every shard again in the sandbox, score, and compare. Raises HostFault if this host cannot."""
    replayed = Replayed(stored, differences=_unlike(settings, stored))
    cache = SplitCache(settings.scratch / "splits", cap_bytes=settings.cache_mib * 2**20)
    context = RunningContext(
        settings=settings,
        facts=worker_facts(settings),
        leases=LocalLeases(),
        artefacts=StoredArtefacts(storage, cache),
        cache=cache,
    )
    try:
        outputs = [_again(context, storage, given, replayed) for given in stored.shards]
        if all(outputs):
            replayed.score = _score(context, stored, join([one for one in outputs if one is not None]))
    finally:
        context.close()
    return replayed


def differs_from_receipt(stored: Stored, receipt: Mapping[str, Any]) -> list[str]:
    """Return the fields in which a receipt differs from this instance."""
    score, submission, split = receipt["score"], receipt["submission"], receipt["split"]
    bits = score["final_score_bits"]  # null in what a team got before the reveal
    pairs = (
        ("score", *((bits, stored.score.hex()) if bits else (score["final_score"], show_score(stored.score)))),
        ("scorer version", score["scorer_version"], stored.scorer_version),
        ("code", submission["sha256"], stored.content_sha256),
        ("split's manifest", split["manifest_sha256"], stored.manifest_sha256),
    )
    return [f"the receipt's {name} is {says}, stored is {holds}" for name, says, holds in pairs if says != holds]


def _unlike(settings: Settings, stored: Stored) -> list[str]:
    """Return what computes otherwise here than it did then."""
    here = worker_facts(settings).versions
    unlike = [
        f"{name} was {then}, is {here[name]}"
        for name, then in stored.split_versions.items()
        if name in here and _release(then) != _release(here[name])
    ]
    if stored.split_device not in (None, settings.worker_device):
        unlike.append(f"the device was {stored.split_device}, is {settings.worker_device}")
    if stored.scorer_version != SCORER_VERSION:
        unlike.append(f"the scorer's version was {stored.scorer_version}, is {SCORER_VERSION}")
    return unlike


def _release(version: object) -> str:
    """Return a version without the build, which not every way of asking tells."""
    return str(version).partition("+")[0]


def _again(
    context: RunningContext, storage: Storage, given: tuple[ClaimedShard, str, str], replayed: Replayed
) -> ShardOutputs | None:
    """Run one shard again and note runs that differ. Return its outputs, None if one failed. Raises HostFault."""
    shard, key, sha256 = given
    for _ in range(ATTEMPTS):
        context.leases = kept = LocalLeases()
        run_shard(context, shard)
        if not kept.given_back:
            break
    if kept.given_back:
        raise HostFault(kept.given_back)
    if kept.failure is not None and kept.failure.error_class in OF_THE_MACHINE:
        raise HostFault(not_repeated(kept.failure.run, kept.failure.error_class, kept.failure.message))
    if kept.failure is not None or kept.result is None:
        why = f"{kept.failure.error_class}: {kept.failure.message}" if kept.failure else "nothing came of it"
        replayed.differences.append(f"run {kept.failure.run if kept.failure else shard.first_run} failed now: {why}")
        return None
    then, now = ShardOutputs.from_bytes(storage.read_verified(key, sha256)), ShardOutputs.from_bytes(kept.result)
    replayed.runs += shard.n_runs
    for run in range(shard.n_runs):
        if any(not np.array_equal(getattr(then, name)[run], getattr(now, name)[run]) for name in COMPARED):
            replayed.different_runs.append(shard.first_run + run)
    return now


def _score(context: RunningContext, stored: Stored, outputs: ShardOutputs) -> float:
    shard = stored.shards[0][0]
    retrained = compared_with(context.artefacts.split(shard), "retrained")
    unlearned = ModelOutputs(outputs.confidences, outputs.retain_accuracy, outputs.test_accuracy)
    scoring, split_dir = shard.competition.scoring, context.artefacts.split(shard)
    visibility = Visibility(stored.visibility)
    seed = secret_attack_seed(stored.file, visibility, stored.content_sha256)
    score = score_outputs(unlearned, retrained, scoring=scoring, attack_seed=seed)
    oracle_seed = secret_attack_seed(stored.file, visibility, ORACLE)
    oracle = oracle_score(split_dir, shard.manifest_sha256, scoring, oracle_seed)
    return rank_outputs(
        stored.file, score, outputs, oracle=oracle, split_dir=split_dir, scoring=scoring, attack_seed=seed
    ).value
