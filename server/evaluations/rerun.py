"""Evaluating a submission again, from its outputs or by new runs: the result replaces what counts, or is kept aside."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from server import audit
from server.db import new_id, now
from server.evaluations import evaluation_repository, evaluations, verified_runs
from server.evaluations.evaluations import SCORER_VERSION
from server.models.competition import Split
from server.models.evaluation import Evaluation, EvaluationState, Shard, ShardKind, ShardState
from server.models.submission import Stage, Submission
from server.queue import EVALUATE_SHARD, send_after_commit

COPIED = (
    "team_id", "split_id", "competition_id", "kind", "first_run", "n_runs", "state", "attempt", "worker",
    "token_id", "trusted_only", "runs_done", "wall_time_s", "result_key", "result_sha256",
)  # fmt: skip


def beside(session: Session, submission: Submission, split: Split, *, rejudging_id: str) -> Evaluation:
    """Queue an evaluation of a re-judging. Nothing that counts changes until it is applied."""
    return _queue(session, submission, split, tag=rejudging_id, is_current=False)


def has_outputs(session: Session, evaluation: Evaluation) -> bool:
    """Return whether the outputs of all runs are stored and checked, so that they can be scored again without running
    code."""
    shards = [
        shard
        for shard in evaluation_repository.get_shards(session, [evaluation.id])
        if shard.kind != ShardKind.SMOKE.value
    ]
    stored = all(shard.state == ShardState.DONE.value and shard.result_key is not None for shard in shards)
    return stored and sum(shard.n_runs for shard in shards if shard.kind == ShardKind.RUNS.value) == evaluation.n_runs


def score_again(session: Session, evaluation: Evaluation, *, tag: str, is_current: bool = False) -> Evaluation:
    """Score the stored outputs of an evaluation again. is_current: the new evaluation counts from now on."""
    submission = session.get_one(Submission, evaluation.submission_id)
    if is_current:
        evaluation.is_current = False
        submission.stage = Stage.SCORING
        session.flush()
    split = session.get_one(Split, evaluation.split_id)
    replaced = evaluation.id if is_current else None
    copy = _add(session, submission, split, tag=tag, is_current=is_current, n_runs=evaluation.n_runs, replaced=replaced)
    session.add_all(
        Shard(evaluation_id=copy.id, **{name: getattr(shard, name) for name in COPIED})
        for shard in evaluation_repository.shards_of_runs(session, evaluation.id)
    )
    session.flush()
    evaluations.ask_for_score(session, copy.id)
    return copy


def instead(session: Session, submission: Submission, split: Split) -> Evaluation:
    """Queue an evaluation that counts from now on; the one that counted is kept, and counts no longer.

    It counts again if this one is cancelled, or if the host fails at it. Those of a re-judging go on beside both. On a
    public split on which none of its smoke runs went well, one goes first: whose code cannot run there shall read why.
    """
    replaced = None
    for known in evaluation_repository.get_evaluations(session, [submission.id], visibility=split.visibility):
        if known.is_current:
            evaluation_repository.lock_evaluation(session, known.id).is_current = False
            evaluation_repository.cancel_open_shards(session, known.id)
            replaced = known if known.split_id == split.id else replaced
    session.flush()
    tag, replaced_id = new_id(), replaced.id if replaced else None
    if split.visibility == Visibility.PUBLIC.value:
        _put_back(submission)
        if not evaluation_repository.has_run_on(session, submission.id, split.id):
            n_runs = evaluations.competition_config(session, split).n_models
            evaluation = _add(session, submission, split, tag=tag, is_current=True, n_runs=n_runs, replaced=replaced_id)
            evaluations.queue_smoke_run(session, evaluation, submission)
            return evaluation
    return _queue(session, submission, split, tag=tag, is_current=True, replaced=replaced_id)


def on_new_version(session: Session, submission: Submission, split: Split) -> Evaluation:
    """Queue an evaluation on a split that has replaced another version; what is at work on that one is stopped."""
    for known in evaluation_repository.get_evaluations(session, [submission.id], visibility=split.visibility):
        if known.split_id != split.id and known.finished_at is None:
            stopped = evaluation_repository.lock_evaluation(session, known.id)
            stopped.state, stopped.finished_at = EvaluationState.CANCELLED.value, now()
            evaluation_repository.cancel_open_shards(session, known.id)
    return instead(session, submission, split)


def resume(session: Session, evaluation: Evaluation) -> None:
    """Queue what the host failed at once more. What is done stays done, and every try is kept."""
    evaluation = evaluation_repository.lock_evaluation(session, evaluation.id)
    evaluation.state = EvaluationState.QUEUED.value
    evaluation.fault = evaluation.error_class = evaluation.error = evaluation.finished_at = None
    session.flush()
    if has_outputs(session, evaluation):  # the host failed at scoring
        evaluations.ask_for_score(session, evaluation.id)
        return
    shards = evaluation_repository.queue_again(session, evaluation.id)
    send_after_commit(
        session, EVALUATE_SHARD, times=shards, to=evaluation_repository.routing_key_for(session, evaluation.split_id)
    )


def _put_back(submission: Submission) -> None:
    submission.stage = Stage.QUEUED
    submission.fault = submission.error_class = submission.error = submission.finished_at = None
    submission.refunded = False


def _queue(
    session: Session, submission: Submission, split: Split, *, tag: str, is_current: bool, replaced: str | None = None
) -> Evaluation:
    config = evaluations.competition_config(session, split)
    n_runs = config.n_models
    evaluation = _add(session, submission, split, tag=tag, is_current=is_current, n_runs=n_runs, replaced=replaced)
    evaluations.queue_runs(session, evaluation, submission, shard_runs=config.shard_runs)
    return evaluation


def _add(
    session: Session,
    submission: Submission,
    split: Split,
    *,
    tag: str,
    is_current: bool,
    n_runs: int,
    replaced: str | None = None,
) -> Evaluation:
    evaluation = Evaluation(
        id=new_id(),
        submission_id=submission.id,
        split_id=split.id,
        scorer_version=SCORER_VERSION,
        rejudging_id=tag,
        is_current=is_current,
        replaces_id=replaced,
        n_runs=n_runs,
        priority=evaluations.ORGANISER_PRIORITY if is_current else evaluations.REJUDGING_PRIORITY,
    )
    session.add(evaluation)
    session.flush()
    return evaluation


def make_again(session: Session, evaluation_id: str, damaged: Sequence[tuple[int, str]]) -> int:
    """Queue shards whose results are damaged (by hash). Return how many. A score that is there stays."""
    evaluation = evaluation_repository.lock_evaluation(session, evaluation_id)
    if evaluation.state not in (EvaluationState.SCORING.value, EvaluationState.SCORED.value):
        return 0
    known = set(damaged)
    lost = [
        shard
        for shard in evaluation_repository.get_shards(session, [evaluation_id])
        if (shard.id, shard.result_sha256) in known and shard.state == ShardState.DONE.value
    ]
    if not lost:
        return 0
    runs = sum(shard.n_runs for shard in lost if shard.kind == ShardKind.RUNS.value)
    evaluation_repository.clear_results(session, lost, state=ShardState.QUEUED, trusted_only=False)
    if evaluation.state == EvaluationState.SCORING.value:
        verified_runs.reopen(session, evaluation)
    submission = session.get_one(Submission, evaluation.submission_id)
    audit.record(session, None, "submission.results_damaged", submission, data={"runs": runs})
    key = evaluation_repository.routing_key_for(session, evaluation.split_id)
    send_after_commit(session, EVALUATE_SHARD, times=len(lost), to=key)
    return len(lost)
