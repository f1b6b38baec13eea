"""Outputs of runs that are damaged or lost: the runs are made again, since their seeds give the same models."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from server.audit import log as audit
from server.evaluations import repository, verified_runs
from server.evaluations import verified_runs_repository as sql
from server.models.evaluation import EvaluationState, ShardKind, ShardState
from server.models.submission import Submission
from server.queue import EVALUATE_SHARD, send_after_commit


def make_again(session: Session, evaluation_id: str, damaged: Sequence[tuple[int, str]]) -> int:
    """Queue these shards of an evaluation, each given with the hash of its damaged result. Return how many that were.

    An evaluation that waits for its score waits for them. One that is scored stays so: its score does not change, and
    what else is computed of its outputs waits.
    """
    evaluation = repository.lock_evaluation(session, evaluation_id)
    if evaluation.state not in (EvaluationState.SCORING.value, EvaluationState.SCORED.value):
        return 0
    known = set(damaged)
    lost = [
        shard
        for shard in repository.get_shards(session, [evaluation_id])
        if (shard.id, shard.result_sha256) in known and shard.state == ShardState.DONE.value
    ]
    if not lost:
        return 0
    runs = sum(shard.n_runs for shard in lost if shard.kind == ShardKind.RUNS.value)
    sql.forget_results(session, lost, state=ShardState.QUEUED, trusted_only=False)
    if evaluation.state == EvaluationState.SCORING.value:
        verified_runs.reopen(session, evaluation)
    submission = session.get_one(Submission, evaluation.submission_id)
    audit.record(session, None, "submission.results_damaged", submission, data={"runs": runs})
    key = repository.routing_key_for(session, evaluation.split_id)
    send_after_commit(session, EVALUATE_SHARD, times=len(lost), to=key)
    return len(lost)
