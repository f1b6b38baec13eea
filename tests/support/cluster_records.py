"""What the database of a cluster says of a submission: attempts, failure, quota, stage."""

from collections.abc import Callable

from sqlalchemy import text

from lethe.client.api import JsonObject
from server.models.evaluation import Evaluation, Shard, ShardAttempt
from server.models.submission import Submission
from tests.faults.cluster import Cluster, Score


def outcomes(cluster: Cluster, submission: JsonObject) -> list[str]:
    with cluster.database.read() as session:
        rows = (
            session.query(ShardAttempt)
            .join(Shard, Shard.id == ShardAttempt.shard_id)
            .join(Evaluation, Evaluation.id == Shard.evaluation_id)
            .filter(Evaluation.submission_id == submission["id"])
            .order_by(ShardAttempt.id)
        )
        return [row.outcome for row in rows]


def describe_failure(cluster: Cluster, submission: JsonObject) -> tuple[str, str | None, str | None]:
    with cluster.database.read() as session:
        row = session.get_one(Submission, submission["id"])
        return row.stage, row.fault, row.error_class


def counted(cluster: Cluster, person: str) -> int:
    """Return how many submissions count against the person's quota."""
    with cluster.database.read() as session:
        return (
            session.query(Submission)
            .filter_by(account_id=_account(cluster, person), refunded=False)
            .filter(Submission.stage != "cancelled")
            .count()
        )


def _account(cluster: Cluster, person: str) -> str:
    with cluster.database.read() as session:
        return str(session.execute(text("SELECT id FROM accounts WHERE name = :name"), {"name": person}).scalar_one())


def stage_is(cluster: Cluster, submission: JsonObject, *stages: str) -> Callable[[], bool]:
    return lambda: cluster.stage(submission) in stages


def scored_like(cluster: Cluster, person: str, submission: dict[str, object], undisturbed: Score) -> None:
    ended = cluster.wait_for_end(person, submission)
    assert ended["stage"] == "scored", ended
    assert cluster.exact_score(submission) == undisturbed
    assert counted(cluster, person) == 1
