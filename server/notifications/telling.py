"""An event is told to those whom it concerns: by mail to people, by webhook to programs.

Both are stored in the transaction of the act itself. Neither holds a figure or what a failure says: those stand behind
the pages' own permissions.
"""

from typing import Any

from sqlalchemy.orm import Session

from server.models.competition import Competition
from server.models.submission import Fault, Submission
from server.notifications import letters, mail, repository, webhooks

OF_SUBMISSIONS = frozenset({"submission.scored", "submission.failed"})


def tell(session: Session, competition_id: str, event: str, data: dict[str, Any]) -> None:
    """Store what is to be told of an event.

    event: one of webhooks.EVENTS. data: for programs; of a submission's events, `submission` is its id.
    """
    webhooks.tell(session, competition_id, event, data)
    if not mail.is_on():
        return
    competition = session.get_one(Competition, competition_id)
    if event in OF_SUBMISSIONS:
        _mail_team(session, competition, event, submission=session.get_one(Submission, data["submission"]))
    else:
        letter = letters.of_competition(competition, event, data)
        addresses = repository.addresses_of_competition(session, competition_id)
        mail.queue_mails(session, addresses, subject=letter.subject, body=letter.body)


def _mail_team(session: Session, competition: Competition, event: str, *, submission: Submission) -> None:
    letter = letters.of_submission(competition, event, submission)
    addresses = repository.addresses_of_team(session, submission.team_id)
    mail.queue_mails(session, addresses, subject=letter.subject, body=letter.body)
    if event == "submission.failed" and submission.fault != Fault.PARTICIPANT:
        letter = letters.of_our_fault(competition, submission)
        addresses = repository.addresses_of_organisers(session, competition.id)
        mail.queue_mails(session, addresses, subject=letter.subject, body=letter.body)
