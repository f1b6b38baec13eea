"""The parts of a submission to a competition with tasks: one submission for each task, which is what is evaluated.

What the team sent is a submission of its own, without an evaluation: it counts against the quota, is chosen for the
finals, and has the state of its parts together. Its state follows at the end of every transaction that changed that of
a part, whatever changed it. Its row is locked after its parts' rows, and after everything else of the transaction.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, event, select
from sqlalchemy.orm import Session, joinedload, object_session

from server.models.competition import Competition
from server.models.submission import ENDED, Stage, Submission
from server.notifications import dispatch

CHANGED = "submissions with a part that changed"


def of(session: Session, submission_ids: Sequence[str]) -> dict[str, list[Submission]]:
    """Return the parts of these submissions by their ids, in the order of the tasks; one without parts has no entry."""
    own: dict[str, list[Submission]] = {}
    if submission_ids:
        for part in session.scalars(_parts(submission_ids)):
            own.setdefault(str(part.parent_id), []).append(part)
    return own


def locked(session: Session, submission_id: str) -> Sequence[Submission]:
    """Return the parts of a submission as they are now, their rows locked until the transaction ends."""
    mine = select(Submission).where(Submission.parent_id == submission_id).order_by(Submission.id).with_for_update()
    return session.scalars(mine.execution_options(populate_existing=True)).all()


def follow(session: Session, submission_id: str) -> None:
    """Give a submission the state of its parts: scored once all have ended and one has a score."""
    session.flush()
    statement = select(Submission).where(Submission.id == submission_id).with_for_update()
    whole = session.scalars(statement.execution_options(populate_existing=True)).one()
    parts = session.scalars(_parts([submission_id]).execution_options(populate_existing=True)).all()
    before, whole.stage = whole.stage, _stage(parts)
    failed = next((part for part in parts if part.stage == Stage.FAILED), None) if whole.stage == Stage.FAILED else None
    whole.fault = failed.fault if failed else None
    whole.error_class = failed.error_class if failed else None
    whole.error = failed.error if failed else None
    whole.refunded = all(part.refunded for part in parts)
    ends = [part.finished_at for part in parts if part.finished_at]
    whole.finished_at = max(ends, default=None) if whole.stage in ENDED else None
    if whole.stage == Stage.CANCELLED:
        whole.selected = False
    session.flush()
    if before not in ENDED and whole.stage in (Stage.SCORED, Stage.FAILED):
        tasks = {str(part.competition.task_name): _end_of(part) for part in parts}
        data: dict[str, Any] = {"submission": whole.id, "tasks": tasks}
        if failed is not None:
            data |= {"fault": str(failed.fault), "error_class": str(failed.error_class)}
        dispatch.notify(session, whole.competition_id, f"submission.{whole.stage}", data)


def _end_of(part: Submission) -> dict[str, str]:
    """Return how a part ended, for programs and mails."""
    if part.stage != Stage.FAILED:
        return {"stage": part.stage}
    return {"stage": part.stage, "fault": str(part.fault), "error_class": str(part.error_class)}


def _parts(submission_ids: Sequence[str]) -> Select[Submission]:
    whole = joinedload(Submission.competition), joinedload(Submission.team), joinedload(Submission.account)
    parts = select(Submission).options(*whole).join(Competition, Competition.id == Submission.competition_id)
    return parts.where(Submission.parent_id.in_(submission_ids)).order_by(Competition.task_place)


def _stage(parts: Sequence[Submission]) -> Stage:
    stages = {part.stage for part in parts}
    if not stages <= ENDED:
        return Stage.QUEUED if stages == {Stage.QUEUED} else Stage.RUNNING
    if Stage.SCORED in stages:
        return Stage.SCORED
    return Stage.FAILED if Stage.FAILED in stages else Stage.CANCELLED


@event.listens_for(Submission.stage, "set")
def _note_change(part: Submission, *_: Any) -> None:
    session = object_session(part)
    if part.parent_id is not None and session is not None:
        session.info.setdefault(CHANGED, set()).add(part.parent_id)


@event.listens_for(Session, "before_commit")
def _follow_changed(session: Session) -> None:
    if session.in_nested_transaction():  # a savepoint: the transaction goes on
        return
    for submission_id in sorted(session.info.pop(CHANGED, ())):
        follow(session, submission_id)
