"""Finds what was lost: leases whose worker is silent, work nobody was told of, scores that never came.

Safe to run at any time, by any number of processes, twice at once.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from lethe.runtime.error_classes import ErrorClass
from server.evaluations import evaluation_repository, evaluations, queue_repository
from server.evaluations.leases import SHARDS
from server.models.evaluation import EvaluationState
from server.queue import EVALUATE_SHARD, MAX_WAKE_UPS, RESENT_AFTER, SCORE_EVALUATION, send_after_commit

UNSCORED_FOR = timedelta(hours=24)  # long after the alarm; what cannot be scored then never will be
NOT_SCORED = "The runs finished but could not be scored."


@dataclass(frozen=True)
class SweepResult:
    """What one sweep found."""

    leases_lost: int
    hints_sent: int
    scores_asked: int


def sweep(
    session: Session,
    at: datetime,
    *,
    max_attempts: int,
    lease_s: float | None = None,
    resent_after: timedelta = RESENT_AFTER,
) -> SweepResult:
    """Requeue shards whose lease is over (`Jobs.sweep`), and send messages again after `resent_after`."""
    lost = SHARDS.sweep(session, at, max_attempts=max_attempts, lease_s=lease_s)
    forgotten = at - resent_after
    waiting = queue_repository.forgotten(session, queued_before=forgotten)
    for routing_key, shards in waiting.items():
        send_after_commit(session, EVALUATE_SHARD, times=shards, to=routing_key)
    if lease_s is not None:
        evaluation_repository.shorten_scoring(session, latest=at + timedelta(seconds=lease_s))
    long_ago = at - UNSCORED_FOR
    for evaluation_id in evaluation_repository.unscored(session, since_before=long_ago, limit=MAX_WAKE_UPS, held=True):
        _give_up(session, evaluation_id)
    unscored = evaluation_repository.unscored(session, since_before=forgotten, limit=MAX_WAKE_UPS)
    for evaluation_id in unscored:
        send_after_commit(session, SCORE_EVALUATION, evaluation_id)
    return SweepResult(leases_lost=lost, hints_sent=sum(waiting.values()), scores_asked=len(unscored))


def _give_up(session: Session, evaluation_id: str) -> None:
    """End an evaluation whose results cannot be scored: they are gone from storage, or the scorer meets an error."""
    evaluation = evaluation_repository.lock_evaluation(session, evaluation_id)
    evaluation_repository.end_scoring(session, evaluation_id, evaluation.scoring_attempt)
    if evaluation.state == EvaluationState.SCORING.value:  # not scored just now
        evaluations.fail_on_our_side(session, evaluation, ErrorClass.NOT_SCORED, NOT_SCORED)
