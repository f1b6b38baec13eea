"""Scores, written exactly once: the primary key is the evaluation."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict
from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from server.competitions.stored_file import stored_file
from server.db import now
from server.disclosure import gate
from server.evaluations import leak_budget, repository
from server.metric_results import service as metric_results
from server.models.competition import Competition, Split, Team
from server.models.evaluation import Evaluation, EvaluationState, PrivateScore, PublicScore, Shard, ShardKind
from server.models.submission import Stage, Submission
from server.notifications import dispatch
from server.queue import GROUP_TIES, send_after_commit
from server.scoring.evaluation_scoring import note_oracle


class ScoreRecord(BaseModel):
    """What the scorer found for one evaluation."""

    model_config = ConfigDict(frozen=True)

    final_score: float
    forgetting_quality: float
    retain_ratio: float
    test_ratio: float
    interval_low: float | None = None
    interval_high: float | None = None
    details: dict[str, Any]
    replicates: dict[str, Any] | None = None
    epsilon: bytes | None = None  # as `models.evaluation` keeps it


def results_to_score(session: Session, evaluation_id: str) -> list[Shard] | None:
    """Return the shards of runs, in order, or None if the evaluation does not wait for a score."""
    evaluation = repository.evaluation_with_split(session, evaluation_id)
    if evaluation is None or evaluation.state != EvaluationState.SCORING.value:
        return None
    shards = [s for s in repository.get_shards(session, [evaluation_id]) if s.kind == ShardKind.RUNS.value]
    return sorted(shards, key=lambda shard: shard.first_run)


def record(
    session: Session,
    evaluation_id: str,
    score: ScoreRecord,
    *,
    oracle: dict[str, Any] | None = None,
    asked_at: datetime | None = None,
) -> bool:
    """Store the score and end the evaluation. Return False if that was done before, or is no longer wanted.

    oracle: the oracle's score by the same metric, as `Split.oracle` holds it. asked_at: `finished_at` of the evaluation
    when its outputs were read; they may have been dropped and made again since.
    """
    evaluation = repository.lock_evaluation(session, evaluation_id)
    if evaluation.state != EvaluationState.SCORING.value or repository.has_score(session, evaluation_id):
        return False
    if asked_at is not None and evaluation.finished_at != asked_at:
        return False
    split = session.get_one(Split, evaluation.split_id)
    is_public = split.visibility == Visibility.PUBLIC.value
    table = PublicScore if is_public else PrivateScore
    found = table(
        evaluation_id=evaluation_id,
        submission_id=evaluation.submission_id,
        scorer_version=evaluation.scorer_version,
        computed_at=now(),
        **score.model_dump(),
    )
    submission = session.get_one(Submission, evaluation.submission_id)
    is_baseline = session.get_one(Team, submission.team_id).is_baseline
    found.is_unconfirmed = not is_baseline and bool(score.details.get("flags", {}).get("held"))
    session.add(found)
    if oracle is not None:
        note_oracle(session, evaluation, oracle)
    evaluation.state = EvaluationState.SCORED.value
    evaluation.finished_at = now()
    competition = session.get_one(Competition, split.competition_id)
    if is_public and evaluation.is_current:
        leak_budget.count(session, evaluation, gate.bits_counted(gate.score(found, competition)))
        submission.stage = Stage.SCORED.value
        submission.finished_at = now()
        dispatch.notify(session, submission.competition_id, "submission.scored", {"submission": submission.id})
    notify_unconfirmed(session, evaluation, found)
    metric_results.request(session, evaluation, stored_file(competition))
    if score.replicates is not None:
        send_after_commit(session, GROUP_TIES, split.id)
    return True


def notify_unconfirmed(session: Session, evaluation: Evaluation, score: PublicScore | PrivateScore) -> None:
    """Notify the organisers of a score that counts now, and takes no rank until they confirm it."""
    if not evaluation.is_current or not score.is_unconfirmed:
        return
    split = session.get_one(Split, evaluation.split_id)
    data = {"submission": evaluation.submission_id, "split": split.visibility}
    dispatch.notify(session, split.competition_id, "submission.unconfirmed", data)
