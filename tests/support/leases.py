"""Steps of a worker with a shard, each in a transaction of its own; outputs of runs, and a split for their scores."""

from pathlib import Path

import numpy as np
from sqlalchemy.orm import Session

from lethe.evaluation.manifest import EvaluationSettings, FileRecord, Manifest
from lethe.evaluation.model_outputs import OUTPUT_PATHS
from lethe.evaluation.shard_outputs import ShardOutputs
from server.db import Database
from server.evaluations import leases
from server.evaluations.claimed_shard import ClaimedShard
from server.models.evaluation import Evaluation, Shard, ShardState
from server.models.submission import Submission
from server.storage import Storage
from tests.server.evaluations.conftest import N


def claim(database: Database, *, worker: str = "w", lease_s: float = 60.0) -> ClaimedShard:
    with database.write() as session:
        shard = leases.claim(session, worker=worker, lease_s=lease_s)
    assert shard is not None
    return shard


def close(database: Database, shard: ClaimedShard, *, wall_time_s: float = 1.0) -> bool:
    result = {"result_key": "k", "result_sha256": "0" * 64}
    with database.write() as session:
        return leases.close(session, shard, **result, wall_time_s=wall_time_s, verified_share=0.05)


def stage(database: Database, submission: Submission) -> str:
    with database.read() as session:
        return session.get_one(Submission, submission.id).stage


def outputs(seed: int, n_models: int = N) -> ShardOutputs:
    rng = np.random.default_rng(seed)
    accuracy = rng.uniform(0.8, 1.0, n_models)
    return ShardOutputs(rng.normal(seed, 1.0, (n_models, 6)), accuracy, accuracy, wall_time_s=accuracy)


def stored_split(storage: Storage, key: str) -> str:
    """Store what scores are computed from, and a manifest that names it. Return the manifest's hash."""
    files = {}
    for kind, seed in (("retrained", 0), ("oracle", 3)):
        path, content = OUTPUT_PATHS[kind], outputs(seed).to_bytes()  # type: ignore[index]
        files[path] = FileRecord(sha256=storage.write(f"{key}/{path}", content), size=len(content))
    manifest = Manifest(
        competition="tiny",
        visibility="public",
        n_models=N,
        fingerprint="",
        recipe={},
        seeds={},
        versions={},
        files=files,
        retraining_time_s=1.0,
        evaluation=EvaluationSettings(),
        quality={},
        steps={},
    )
    return storage.write(f"{key}/manifest.json", manifest.model_dump_json().encode())


def add_done_shard(session: Session, storage: Storage, evaluation: Evaluation, given: ShardOutputs) -> None:
    """Give an evaluation one shard with all its runs, which are done and gave these outputs."""
    submission = session.get_one(Submission, evaluation.submission_id)
    of = {"team_id": submission.team_id, "competition_id": submission.competition_id, "split_id": evaluation.split_id}
    runs = {"kind": "runs", "first_run": 0, "n_runs": evaluation.n_runs, "runs_done": evaluation.n_runs, "attempt": 1}
    key = f"evaluations/{evaluation.id}/0"
    stored = {"result_key": key, "result_sha256": storage.write(key, given.to_bytes())}
    session.add(Shard(evaluation_id=evaluation.id, state=ShardState.DONE.value, **of, **runs, **stored))


def flip_a_byte(path: Path, place: int = -20) -> None:
    """Damage a file so that it can still be read."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
