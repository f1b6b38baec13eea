"""What a trusted worker finds when it makes an untrusted worker's runs again, and what follows.

A result that differs is made once more, by a trusted worker. If its two results agree, the untrusted worker's was
false, and its token is quarantined; if they do not, the submission does not give the same twice, which proves nothing,
and trusted workers run it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from lethe.evaluation.shard_outputs import ShardOutputs
from lethe.runtime.error_classes import OF_THE_MACHINE
from server import audit
from server.config import Settings
from server.db import Database, now
from server.evaluations import evaluation_repository, evaluations, leases, verified_runs
from server.evaluations.claimed_shard import ClaimedShard, ShardFailure
from server.models.competition import Split
from server.models.evaluation import Evaluation, ShardKind
from server.models.worker import WorkerToken
from server.notifications import dispatch
from server.storage import Storage
from server.workers import worker_repository

NOT_COMPARED = ("wall_time_s", "cpu_time_s")
MAX_CONTRADICTED = 3  # teams about whose submissions a token's failures or successes turned out false
NOT_REPRODUCIBLE = "its runs are not the same twice on a trusted worker"


@dataclass(frozen=True)
class Difference:
    """The array that differs most for its tolerance, and by how much; `size` is infinite where the forms differ."""

    array: str
    size: float

    def __str__(self) -> str:
        return f"{self.array} differ by {self.size:.3g}"


def rows(outputs: ShardOutputs, first: int, n_runs: int) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of some of a shard's runs. first: counted from the shard's own first run."""
    return {name: array[first : first + n_runs] for name, array in outputs.arrays().items() if name not in NOT_COMPARED}


def find_difference(
    there: dict[str, NDArray[np.generic]], here: dict[str, NDArray[np.generic]], *, tolerance: float
) -> Difference | None:
    """Return what differs by more than `tolerance`: confidences at most, others on average. None if nothing does."""
    if there.keys() != here.keys():
        return Difference("names of arrays", np.inf)
    differences = [Difference(name, _size(name, there[name], here[name])) for name in sorted(here)]
    worst = max(differences, key=lambda difference: difference.size)
    return worst if worst.size > tolerance else None


def _size(name: str, there: NDArray[np.generic], here: NDArray[np.generic]) -> float:
    if there.shape != here.shape or there.dtype != here.dtype:
        return np.inf
    if not here.size:
        return 0.0
    runs = here.shape[0]
    if not np.issubdtype(here.dtype, np.floating):
        return float((there != here).reshape(runs, -1).mean(axis=1).max())
    a, b = there.astype(np.float64), here.astype(np.float64)
    both_nan = np.isnan(a) & np.isnan(b)  # the accuracy of a class without images
    apart = np.where(both_nan, 0.0, np.abs(a - b) / np.maximum(1.0, np.abs(b))).reshape(runs, -1)
    if np.isnan(apart).any():
        return np.inf
    by_run = np.abs(a - b).reshape(runs, -1).max(axis=1) if name == "confidences" else apart.mean(axis=1)
    return float(by_run.max())


@dataclass(frozen=True)
class StoredCheck:
    """Outputs of a check as the trusted worker stored them."""

    key: str
    sha256: str
    data: bytes
    wall_time_s: float


def settle(database: Database, storage: Storage, settings: Settings, shard: ClaimedShard, made: StoredCheck) -> bool:
    """End a check, as its outputs say. Return False if the attempt is not current. Raises HostFault."""
    with database.read() as session:
        claim = worker_repository.checked_claim(session, shard.shard_id) if leases.is_current(session, shard) else None
        if claim is None:
            return False
        split = session.get_one(Split, session.get_one(Evaluation, shard.evaluation_id).split_id)
        tolerance = evaluations.competition_config(session, split).workers.tolerance
    here = rows(ShardOutputs.from_bytes(made.data), 0, shard.n_runs)
    claimed = ShardOutputs.from_bytes(storage.read_verified(claim.key, claim.sha256))
    difference = find_difference(
        rows(claimed, shard.first_run - claim.first_run, shard.n_runs), here, tolerance=tolerance
    )
    if difference is None:
        return database.retrying(lambda session: _confirm(session, settings, shard, made, claim.token_id))
    if claim.earlier is None:
        return database.retrying(
            lambda session: leases.check_again(session, shard, result_key=made.key, result_sha256=made.sha256)
        )
    key, sha256 = claim.earlier
    earlier = rows(ShardOutputs.from_bytes(storage.read_verified(key, sha256)), 0, shard.n_runs)
    is_false = find_difference(earlier, here, tolerance=tolerance) is None
    runs = f"run {shard.first_run}" if shard.n_runs == 1 else "the runs"
    reason = f"of {runs} of submission {shard.submission_id}, {difference}, and two trusted results agree"
    return database.retrying(lambda session: _drop(session, shard, claim.token_id, reason if is_false else ""))


def _confirm(session: Session, settings: Settings, shard: ClaimedShard, made: StoredCheck, token_id: str) -> bool:
    token = worker_repository.token_to_change(
        session, token_id
    )  # before the evaluation, as for every step of its workers
    closed = leases.close(
        session,
        shard,
        result_key=made.key,
        result_sha256=made.sha256,
        wall_time_s=made.wall_time_s,
        verified_share=settings.verified_share,
    )
    if closed:
        token.confirmed_runs += shard.n_runs
    return closed


def _drop(session: Session, shard: ClaimedShard, token_id: str, reason: str) -> bool:
    token = worker_repository.token_to_change(session, token_id)
    evaluation_repository.lock_evaluation(session, shard.evaluation_id)
    if not leases.is_current(session, shard):
        return False
    if reason:
        quarantine(session, token, reason=reason)
    else:
        verified_runs.take_back(session, shard.evaluation_id, reason=NOT_REPRODUCIBLE)
    return True


def quarantine(session: Session, token: WorkerToken, *, reason: str) -> None:
    """Refuse a token from now on, drop every result of its workers, and let trusted workers make them again."""
    if token.quarantined_at is not None:
        return
    token.quarantined_at = now()
    token.quarantine_reason = reason
    leases.take_from(session, worker_repository.worker_names(session, token.id), reason="its token was quarantined")
    evaluations = worker_repository.evaluations_with_results_of(session, token.id)
    for evaluation_id in evaluations:
        verified_runs.take_back(session, evaluation_id, token_id=token.id, reason="its token was quarantined")
    worker_repository.forget_sample_answers(session, token.id)
    data = {"name": token.name, "evaluations": len(evaluations)}
    audit.record(session, None, "worker_token.quarantined", token, reason=reason, data=data)
    dispatch.notify(session, token.competition_id, "worker_token.quarantined", data | {"token": token.id})


def note_contradicted(session: Session, shard_id: int, *, outcome: str = "unconfirmed") -> None:
    """After a trusted worker ended a shard otherwise than untrusted ones had: remember it, and quarantine a token whose
    word was false about submissions of several teams.

    outcome: what the untrusted workers said of it. One team proves nothing: its code may fail by chance.
    """
    for token_id in worker_repository.contradict(session, shard_id, outcome=outcome):
        teams = worker_repository.teams_contradicted(session, token_id)
        if teams >= MAX_CONTRADICTED:
            token = worker_repository.token_to_change(session, token_id)
            quarantine(session, token, reason=f"trusted workers contradict it about submissions of {teams} teams")


def note_failed_check(session: Session, shard: ClaimedShard, failure: ShardFailure) -> None:
    """Remember the untrusted worker that said a run went well which failed on a trusted one."""
    if shard.kind is ShardKind.CHECK and failure.error_class not in OF_THE_MACHINE:
        claim = worker_repository.checked_claim(session, shard.shard_id)
        if claim is not None:
            note_contradicted(session, claim.shard_id, outcome="done")
