"""Which evaluation's result a submission shows, and the return to the one before a re-run that came to nothing."""

from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from server.competitions.stored_file import stored_file
from server.evaluations import leak_budget
from server.models.competition import Competition, Split
from server.models.evaluation import Evaluation, EvaluationState
from server.models.submission import Fault, Stage, Submission


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
        submission.refunded = evaluation.fault != Fault.PARTICIPANT
    elif evaluation.state == EvaluationState.SCORING:
        submission.stage, submission.finished_at, submission.refunded = Stage.SCORING, None, False
    else:
        submission.stage = Stage.SCORED if evaluation.state == EvaluationState.SCORED else Stage.CANCELLED
        submission.refunded = evaluation.state == EvaluationState.CANCELLED


def return_to_replaced(session: Session, evaluation: Evaluation, *, scored_only: bool = False) -> bool:
    """Restore the evaluation that this re-run replaced. Return False where it replaced none.

    scored_only: only where that one has a score.
    """
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
