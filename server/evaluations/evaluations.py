"""The life of an evaluation: started, run in shards, scored or failed. Shards are leased in leases.py."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from pydantic import Field
from sqlalchemy.orm import Session

from lethe.competition.file import CompetitionFile
from lethe.competition.visibility import Visibility
from lethe.runtime.error_classes import ErrorClass
from server import audit
from server.competitions.stored_file import stored_file
from server.db import clock, new_id, now
from server.evaluations import evaluation_repository, leak_budget, parts, queue_repository, results
from server.models.competition import Competition, Split, Team
from server.models.evaluation import Evaluation, EvaluationState, Shard, ShardAttempt, ShardKind, ShardState
from server.models.submission import ENDED, Fault, Stage, Submission
from server.notifications import dispatch
from server.queue import COMPUTE_METRICS, EVALUATE_SHARD, SCORE_EVALUATION, Turn, send_after_commit

SCORER_VERSION = "1"
HOST_RETRIES = 3  # of a final on the private split
BASELINE_PRIORITY, REJUDGING_PRIORITY, ORGANISER_PRIORITY = -2, -1, 5
TURNS = {
    BASELINE_PRIORITY: Turn.BASELINE,
    REJUDGING_PRIORITY: Turn.REJUDGING,
    0: Turn.NEW,
    ORGANISER_PRIORITY: Turn.ORGANISER,
}


@dataclass(frozen=True)
class AttemptEntry:
    """One line of the timeline: a worker's attempt at some runs."""

    first_run: int
    last_run: int
    kind: Annotated[str, Field(description="smoke or runs", examples=["runs"])]
    attempt: int
    outcome: Annotated[str, Field(description="running, done, failed, lost, given-back, cancelled", examples=["done"])]
    started_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True)
class EvaluationProgress:
    """Runs done of all, and how long the rest may take."""

    runs_done: Annotated[int, Field(examples=[137])]
    runs_total: Annotated[int, Field(examples=[512])]
    elapsed_s: float | None
    remaining_s: Annotated[float | None, Field(description="an estimate; null while nothing is known")]
    attempts: tuple[AttemptEntry, ...]


def remaining_s(elapsed_s: float | None, done: int, total: int) -> float | None:
    """Return how long the runs that are left may take, if they go on as those before."""
    return elapsed_s / done * (total - done) if elapsed_s and done else None


def start(session: Session, submission: Submission, split: Split, *, smoke: bool) -> Evaluation:
    """Queue the submission on the split, with `smoke` a run on the public sample first. Safe to do twice."""
    known = evaluation_repository.get_evaluation(session, submission.id, split.id, scorer_version=SCORER_VERSION)
    if known:
        return known
    config = competition_config(session, split)
    is_baseline = session.get_one(Team, submission.team_id).is_baseline
    priority = BASELINE_PRIORITY if is_baseline else 0
    evaluation = Evaluation(
        id=new_id(),
        submission_id=submission.id,
        split_id=split.id,
        scorer_version=SCORER_VERSION,
        n_runs=config.n_models,
        priority=priority,
    )
    session.add(evaluation)
    session.flush()
    if smoke:
        queue_smoke_run(session, evaluation, submission, is_baseline=is_baseline)
    else:
        queue_runs(session, evaluation, submission, shard_runs=config.shard_runs)
    return evaluation


def queue_smoke_run(
    session: Session, evaluation: Evaluation, submission: Submission, *, is_baseline: bool = False
) -> None:
    """Queue one run on the public sample; where it goes well, the others are queued."""
    busy = queue_repository.has_open_smoke_run(session, evaluation.split_id, submission.team_id)
    turn = TURNS[evaluation.priority] if is_baseline or busy else Turn.SMOKE
    _queue(session, evaluation, submission, ((ShardKind.SMOKE, 0, 1),), turn=turn)


def queue_runs(session: Session, evaluation: Evaluation, submission: Submission, *, shard_runs: int) -> None:
    """Cut the evaluation's runs into shards and queue them; a notebook's own loop is one shard."""
    if is_notebook(submission):
        shard_runs = evaluation.n_runs
    starts = range(0, evaluation.n_runs, shard_runs)
    pieces = [(ShardKind.RUNS, first, min(shard_runs, evaluation.n_runs - first)) for first in starts]
    _queue(session, evaluation, submission, pieces, turn=TURNS[evaluation.priority])


def queue_checks(
    session: Session, evaluation: Evaluation, submission: Submission, pieces: Sequence[tuple[int, int]]
) -> None:
    """Queue runs that trusted workers make again, each piece as its first run and how many."""
    checks = [(ShardKind.CHECK, first, count) for first, count in pieces]
    _queue(session, evaluation, submission, checks, turn=Turn.CHECK)


def is_notebook(submission: Submission) -> bool:
    """Return whether all runs of the submission are one program, which is run and checked as a whole."""
    return submission.entry_point.get("mode") == "notebook"


def cancel(session: Session, submission: Submission, *, refunded: bool) -> None:
    """Stop the evaluation that counts; of one that organisers asked for, the result before it counts again."""
    if submission.stage in ENDED:
        return
    if evaluation := evaluation_repository.current_evaluation(session, submission.id, Visibility.PUBLIC.value):
        evaluation = evaluation_repository.lock_evaluation(session, evaluation.id)
        evaluation.state = EvaluationState.CANCELLED.value
        evaluation.finished_at = now()
        evaluation_repository.cancel_open_shards(session, evaluation.id)
        if results.return_to_replaced(session, evaluation):
            return
    submission.stage = Stage.CANCELLED
    submission.refunded = refunded
    submission.selected = False  # its place among the finals is another's
    submission.finished_at = now()


def cancellable(session: Session, submissions: Sequence[Submission]) -> list[Submission]:
    """Return those that their team may cancel: they have not ended, and run because the team sent them."""
    going = [submission for submission in submissions if submission.stage not in ENDED]
    asked_for = evaluation_repository.asked_for_by_organisers(session, [submission.id for submission in going])
    return [submission for submission in going if submission.id not in asked_for]


def runs_started(session: Session, submission: Submission) -> bool:
    """Return whether any run of the submission or of a part, smoke runs included, was ever given to a worker."""
    ids = [submission.id, *(part.id for part in parts.of(session, [submission.id]).get(submission.id, ()))]
    evaluations = evaluation_repository.get_evaluations(session, ids, visibility=Visibility.PUBLIC.value)
    return any(shard.attempt > 0 for shard in evaluation_repository.get_shards(session, [e.id for e in evaluations]))


def fail(
    session: Session, evaluation: Evaluation, *, fault: Fault, error_class: ErrorClass, error: dict[str, object]
) -> None:
    """End the evaluation, and with it a public submission, with a named failure.

    Where the host failed at a re-run that organisers asked for, the score before it counts again. A score that is there
    stays, where runs are made again because their outputs were damaged.

    error: everything that is known of it. The team sees what `leak_budget.disclose` lets through.
    """
    if evaluation.state == EvaluationState.SCORED.value:
        evaluation_repository.cancel_open_shards(session, evaluation.id)
        return
    evaluation.state = EvaluationState.FAILED.value
    evaluation.fault = fault.value
    evaluation.error_class = error_class
    evaluation.error = error
    evaluation.finished_at = now()
    evaluation_repository.cancel_open_shards(session, evaluation.id)
    split = session.get_one(Split, evaluation.split_id)
    if evaluation.is_current and split.visibility == Visibility.PUBLIC.value:
        submission = session.get_one(Submission, evaluation.submission_id)
        if fault is Fault.HOST and results.return_to_replaced(session, evaluation, scored_only=True):
            audit.record(session, None, "submission.run_again_failed", submission, data={"error_class": error_class})
            return
        budget = competition_config(session, split).limits.leak_bits_per_day
        disclosed = leak_budget.disclose(session, evaluation, submission, budget=budget)
        submission.stage = Stage.FAILED
        submission.fault = fault.value
        submission.error_class = error_class
        submission.error = disclosed
        submission.refunded = results.is_refunded(session, evaluation, submission)
        submission.finished_at = now()
        event = {"submission": submission.id, "fault": fault.value, "error_class": error_class}
        dispatch.notify(session, submission.competition_id, "submission.failed", event)
    elif evaluation.is_current and needs_decision(session, evaluation):
        dispatch.notify(session, split.competition_id, "final.failed", {"submission": evaluation.submission_id})


def needs_decision(session: Session, evaluation: Evaluation | None) -> bool:
    """Return whether organisers must decide about a final: it failed, and no retry is left."""
    if evaluation is None or evaluation.state not in (EvaluationState.FAILED, EvaluationState.CANCELLED):
        return False
    if evaluation.state == EvaluationState.FAILED and evaluation.fault == Fault.HOST:
        return evaluation_repository.host_faults(session, evaluation.submission_id, evaluation.split_id) > HOST_RETRIES
    return True


def fail_on_our_side(
    session: Session, evaluation: Evaluation, error_class: ErrorClass, message: str, *, run: int = 0
) -> None:
    """End the evaluation because of a fault that is not its participant's."""
    text = f"{message} It does not count against your quota, and the organisers have been notified."
    error: dict[str, object] = {"message": text, "run": run, "exception_type": None, "file": None, "line": None}
    fail(session, evaluation, fault=Fault.HOST, error_class=error_class, error=error)


def queue_runs_after_smoke(session: Session, evaluation_id: str) -> None:
    """Queue the runs of an evaluation whose smoke run went well."""
    evaluation = evaluation_repository.lock_evaluation(session, evaluation_id)
    submission = session.get_one(Submission, evaluation.submission_id)
    split = session.get_one(Split, evaluation.split_id)
    submission.stage = Stage.RUNNING
    queue_runs(session, evaluation, submission, shard_runs=competition_config(session, split).shard_runs)


def ask_for_score(session: Session, evaluation_id: str) -> None:
    """Queue the evaluation for scoring once all its runs are done. One with a score had damaged runs repeated."""
    evaluation = evaluation_repository.lock_evaluation(session, evaluation_id)
    if evaluation.state == EvaluationState.SCORED.value:
        send_after_commit(session, COMPUTE_METRICS, evaluation.id)
        return
    evaluation.state = EvaluationState.SCORING.value
    evaluation.finished_at = clock(session)  # the sweep goes by it; a worker's own clock may be wrong
    split = session.get_one(Split, evaluation.split_id)
    if evaluation.is_current and split.visibility == Visibility.PUBLIC.value:
        session.get_one(Submission, evaluation.submission_id).stage = Stage.SCORING
    send_after_commit(session, SCORE_EVALUATION, evaluation.id)


def competition_config(session: Session, split: Split) -> CompetitionFile:
    """Return the competition file that the split belongs to."""
    return stored_file(session.get_one(Competition, split.competition_id))


def progress(session: Session, submission_ids: Sequence[str]) -> dict[str, EvaluationProgress]:
    """Return the progress of each submission on the public split, by submission id."""
    evaluations = evaluation_repository.get_evaluations(session, submission_ids, visibility=Visibility.PUBLIC.value)
    newest = {evaluation.submission_id: evaluation for evaluation in evaluations if evaluation.is_current}
    ids = [evaluation.id for evaluation in newest.values()]
    shards = evaluation_repository.get_shards(session, ids)
    attempts = [
        pair for pair in evaluation_repository.get_attempts(session, ids) if pair[1].kind != ShardKind.CHECK.value
    ]
    return {
        submission_id: _progress(
            evaluation,
            [shard for shard in shards if shard.evaluation_id == evaluation.id],
            [pair for pair in attempts if pair[1].evaluation_id == evaluation.id],
        )
        for submission_id, evaluation in newest.items()
    }


def _progress(
    evaluation: Evaluation, shards: Sequence[Shard], attempts: Sequence[tuple[ShardAttempt, Shard]]
) -> EvaluationProgress:
    done = sum(shard.runs_done for shard in shards if shard.kind == ShardKind.RUNS.value)
    first = min((attempt.started_at for attempt, shard in attempts if shard.kind == ShardKind.RUNS.value), default=None)
    end = evaluation.finished_at or now()
    elapsed = (end - first).total_seconds() if first else None
    return EvaluationProgress(
        runs_done=done,
        runs_total=evaluation.n_runs,
        elapsed_s=elapsed,
        remaining_s=None if evaluation.finished_at else remaining_s(elapsed, done, evaluation.n_runs),
        attempts=tuple(_shown_attempt(attempt, shard) for attempt, shard in attempts),
    )


def _shown_attempt(attempt: ShardAttempt, shard: Shard) -> AttemptEntry:
    """Return an attempt as its team sees it: without what an untrusted worker reported of a failure."""
    return AttemptEntry(
        first_run=shard.first_run,
        last_run=shard.first_run + shard.n_runs - 1,
        kind=shard.kind,
        attempt=attempt.attempt,
        outcome="given-back" if attempt.outcome in ("unconfirmed", "refuted") else attempt.outcome,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
    )


def _queue(
    session: Session,
    evaluation: Evaluation,
    submission: Submission,
    pieces: Sequence[tuple[ShardKind, int, int]],
    *,
    turn: Turn,
) -> None:
    own_round = queue_repository.next_round(session, evaluation, submission.team_id, turn) if turn.has_rounds else 0
    kept = competition_config(session, session.get_one(Split, evaluation.split_id)).report.keep_weights
    session.add_all(
        Shard(
            evaluation_id=evaluation.id,
            team_id=submission.team_id,
            split_id=evaluation.split_id,
            competition_id=submission.competition_id,
            kind=kind.value,
            first_run=first,
            n_runs=count,
            turn=turn.first + own_round,
            state=ShardState.QUEUED.value,
            # Weights that are kept are not compared with anything: they come from trusted workers alone.
            trusted_only=kind is ShardKind.CHECK or (kind is ShardKind.RUNS and first < kept),
        )
        for kind, first, count in pieces
    )
    session.flush()
    routing_key = evaluation_repository.routing_key_for(session, evaluation.split_id)
    send_after_commit(session, EVALUATE_SHARD, times=len(pieces), to=routing_key)
