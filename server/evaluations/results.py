"""Which evaluation's result a submission shows, the return to the one
before a re-run that came to nothing, and which weights are kept."""

import re
from datetime import datetime

from sqlalchemy import ColumnElement, or_
from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from server.competitions.stored_file import stored_file
from server.db import DAY, start_of_day
from server.evaluations import evaluation_repository, leak_budget
from server.models.competition import Competition, Split
from server.models.evaluation import Evaluation, EvaluationState, Shard
from server.models.submission import Fault, Stage, Submission

FREE_SAMPLE_FAILURES = 20  # of a team and UTC day: one run each


def is_refunded(session: Session, evaluation: Evaluation, submission: Submission) -> bool:
    """Return whether a submission whose evaluation failed does not count against the quota.

    A failure that is not its team's never does. One on the public sample does not either, for the first ones among what
    the team sent on a UTC day. The team is held while they are counted, until the transaction ends.
    """
    if evaluation.fault != Fault.PARTICIPANT:
        return True
    if (evaluation.error or {}).get("on_hidden_data") is not False:
        return False
    evaluation_repository.lock_team(session, submission.team_id)
    day = start_of_day(submission.received_at)
    sent_as = submission.parent_id or submission.id
    free = evaluation_repository.free_sample_failures(session, submission.team_id, since=day, before=day + DAY)
    return len(free - {sent_as}) < FREE_SAMPLE_FAILURES


def free_failures_left(session: Session, team_id: str, *, day: datetime) -> int:
    """Return how many of a day's submissions may still fail on the public sample without counting. day: its begin."""
    free = evaluation_repository.free_sample_failures(session, team_id, since=day, before=day + DAY)
    return max(0, FREE_SAMPLE_FAILURES - len(free))


def show_result(session: Session, evaluation: Evaluation) -> None:
    """Show on the submission what its public evaluation, which counts now, came to."""
    submission = session.get_one(Submission, evaluation.submission_id)
    split = session.get_one(Split, evaluation.split_id)
    budget = stored_file(session.get_one(Competition, split.competition_id)).limits.leak_bits_per_day
    submission.finished_at = evaluation.finished_at
    submission.fault, submission.error_class, submission.error = (
        evaluation.fault,
        evaluation.error_class,
        leak_budget.disclose(session, evaluation, submission, budget=budget),
    )
    if evaluation.state == EvaluationState.FAILED:
        submission.stage = Stage.FAILED
        submission.refunded = is_refunded(session, evaluation, submission)
    elif evaluation.state == EvaluationState.SCORING:
        submission.stage, submission.finished_at, submission.refunded = Stage.SCORING, None, False
    else:
        submission.stage = Stage.SCORED if evaluation.state == EvaluationState.SCORED else Stage.CANCELLED
        submission.refunded = evaluation.state == EvaluationState.CANCELLED


def return_to_replaced(session: Session, evaluation: Evaluation, *, scored_only: bool = False) -> bool:
    """Restore the evaluation that this re-run replaced (scored_only: if it has a score). Return whether."""
    replaced = session.get(Evaluation, evaluation.replaces_id) if evaluation.replaces_id else None
    if replaced is None or (scored_only and replaced.state != EvaluationState.SCORED):
        return False
    evaluation.is_current = False
    session.flush()
    replaced.is_current = True
    session.flush()
    if session.get_one(Split, evaluation.split_id).visibility == Visibility.PUBLIC.value:
        show_result(session, replaced)
    return True


_SUFFIX = "-weights.safetensors"
_ATTEMPT = re.compile(r"^(evaluations/[^/]+/runs-\d+-attempt-\d+)(-[0-9a-f]{16})?\.safetensors$")


def weights_key(result_key: str) -> str:
    """Return where the weights lie that belong to an attempt's outputs, whether there are any or not."""
    match = _ATTEMPT.match(result_key)
    return (match[1] if match else result_key.removesuffix(".safetensors")) + _SUFFIX


def has_outputs_of(key: str) -> ColumnElement[bool]:
    """Return the condition that a shard's outputs are of the attempt whose weights lie under `key`."""
    attempt = key.removesuffix(_SUFFIX)
    named_by_content = Shard.result_key.startswith(f"{attempt}-", autoescape=True)
    return or_(Shard.result_key == f"{attempt}.safetensors", named_by_content)


def is_weights(key: str) -> bool:
    return key.endswith(_SUFFIX)
