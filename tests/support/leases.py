"""Steps of a worker with a shard, each in a transaction of its own."""

from server.db import Database
from server.evaluations import leases
from server.evaluations.claimed_shard import ClaimedShard
from server.models.submission import Submission


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
