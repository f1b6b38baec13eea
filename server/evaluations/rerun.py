"""Evaluating a submission again: in place of the evaluation that counts, or beside it."""

from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from server.db import new_id
from server.evaluations import repository, service
from server.evaluations.scorer_version import SCORER_VERSION
from server.models.competition import Split
from server.models.evaluation import Evaluation, EvaluationState
from server.models.submission import Stage, Submission
from server.queue import EVALUATE_SHARD, send_after_commit


def beside(session: Session, submission: Submission, split: Split, *, rejudging_id: str) -> Evaluation:
    """Queue an evaluation of a re-judging. Nothing that counts changes until it is applied."""
    return _queue(session, submission, split, tag=rejudging_id, is_current=False)


def instead(session: Session, submission: Submission, split: Split) -> Evaluation:
    """Queue an evaluation that counts from now on; the one that counted is kept, and counts no longer."""
    for known in repository.get_evaluations(session, [submission.id], visibility=split.visibility):
        repository.lock_evaluation(session, known.id).is_current = False
        repository.cancel_open_shards(session, known.id)
    session.flush()
    if split.visibility == Visibility.PUBLIC.value:
        _put_back(submission)
    return _queue(session, submission, split, tag=new_id(), is_current=True)


def resume(session: Session, evaluation: Evaluation) -> None:
    """Queue what the host failed at once more. What is done stays done, and every try is kept."""
    evaluation = repository.lock_evaluation(session, evaluation.id)
    evaluation.state = EvaluationState.QUEUED.value
    evaluation.fault = evaluation.error_class = evaluation.error = evaluation.finished_at = None
    session.flush()
    shards = repository.queue_again(session, evaluation.id)
    send_after_commit(
        session, EVALUATE_SHARD, times=shards, to=repository.routing_key_for(session, evaluation.split_id)
    )


def _put_back(submission: Submission) -> None:
    submission.stage = Stage.QUEUED.value
    submission.fault = submission.error_class = submission.error = submission.finished_at = None
    submission.refunded = False


def _queue(session: Session, submission: Submission, split: Split, *, tag: str, is_current: bool) -> Evaluation:
    config = service.competition_config(session, split)
    evaluation = Evaluation(
        id=new_id(),
        submission_id=submission.id,
        split_id=split.id,
        scorer_version=SCORER_VERSION,
        rejudging_id=tag,
        is_current=is_current,
        n_runs=config.n_models,
        priority=service.ORGANISER_PRIORITY if is_current else service.REJUDGING_PRIORITY,
    )
    session.add(evaluation)
    session.flush()
    service.queue_runs(session, evaluation, submission, shard_runs=config.shard_runs)
    return evaluation
