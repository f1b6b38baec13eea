"""Whether a team lets the code of a submission be published with the results, after the end. Nobody does by default."""

from sqlalchemy.orm import Session

from server.audit import log as audit
from server.evaluations import parts
from server.models.account import Account
from server.models.submission import Submission
from server.submissions import repository


def allow(session: Session, submission: Submission, *, allowed: bool, actor: Account) -> Submission:
    """Allow or forbid publishing the code. What is published already stays so.

    The parts of a submission to several tasks have one code: asked of one, it is done to all. Each change is recorded.
    """
    whole = repository.by_id(session, submission.parent_id or submission.id) or submission
    if whole.publish_code != allowed:
        for each in (whole, *parts.of(session, [whole.id]).get(whole.id, ())):
            each.publish_code = allowed
        action = "submission.publication_allowed" if allowed else "submission.publication_withdrawn"
        audit.record(session, actor, action, competition=whole.competition_id, subject=whole.id)
        session.flush()
    return submission
