"""An event is sent to those whom it concerns: by mail to people, by webhook to programs.

Both are stored in the transaction of the act itself. Neither holds a figure or what a failure says: those stand behind
the pages' own permissions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from server.models.competition import Competition
from server.models.submission import Fault, Submission
from server.notifications import email_delivery, notification_repository, outbox, webhooks
from server.notifications.email_delivery import EmailContent

SUBMISSION_EVENTS = frozenset({"submission.scored", "submission.failed"})
DECISIONS: Mapping[str, Callable[..., EmailContent]] = {  # what waits for the organisers, with the mail that says so
    "submission.unconfirmed": email_delivery.unconfirmed_email,
    "final.failed": email_delivery.failed_final_email,
}


@dataclass(frozen=True)
class Reached:
    """How many people an announcement is for, and how many of them get it by mail. mails: 0 where mail is off."""

    people: int
    mails: int


def announce(session: Session, competition: Competition, data: dict[str, Any]) -> Reached:
    """Store the messages about an announcement."""
    webhooks.notify(session, competition.id, "competition.announced", data)
    addresses = notification_repository.addresses_of_competition(session, competition.id) if outbox.sends_mail() else []
    _queue(session, addresses, email_delivery.competition_email(competition, "competition.announced", data))
    return Reached(notification_repository.count_people(session, competition.id), len(addresses))


def notify(session: Session, competition_id: str, event: str, data: dict[str, Any]) -> None:
    """Store the messages about an event of webhooks.EVENTS. data: for programs; `submission` is an id."""
    if event in SUBMISSION_EVENTS and session.get_one(Competition, competition_id).parent_id is not None:
        return  # of a part; the submission that it is a part of has an event of its own
    if event in DECISIONS:
        _notify_of_decision(session, session.get_one(Competition, competition_id), event, data)
        return
    webhooks.notify(session, competition_id, event, data)
    if not outbox.sends_mail():
        return
    competition = session.get_one(Competition, competition_id)
    if event in SUBMISSION_EVENTS:
        submission = session.get_one(Submission, data["submission"])
        _mail_team(session, competition, event, submission=submission, tasks=data.get("tasks", {}))
    elif event == "worker_token.quarantined":
        addresses = notification_repository.addresses_of_organisers(session, competition_id, administrators_too=True)
        _queue(session, addresses, email_delivery.quarantine_email(competition, token_name=data["name"]))
    else:
        addresses = notification_repository.addresses_of_competition(session, competition_id)
        _queue(session, addresses, email_delivery.competition_email(competition, event, data))


def write(
    session: Session, competition: Competition, addresses: Sequence[str], *, subject: str, text: str, path: str
) -> None:
    """Store a mail to each address, with a link to a page of this instance."""
    _queue(session, addresses, email_delivery.letter(competition, subject=subject, text=text, path=path))


def _mail_team(
    session: Session,
    competition: Competition,
    event: str,
    *,
    submission: Submission,
    tasks: Mapping[str, Mapping[str, str]],
) -> None:
    """Write to the team, and to organisers if it was no fault of the team's. tasks: how it ended in each."""
    addresses = notification_repository.addresses_of_team(session, submission.team_id)
    _queue(session, addresses, email_delivery.submission_email(competition, event, submission, tasks=tasks))
    faults = {end["fault"] for end in tasks.values() if "fault" in end}
    if not tasks and event == "submission.failed":
        faults = {str(submission.fault)}
    if faults - {Fault.PARTICIPANT.value}:
        addresses = notification_repository.addresses_of_organisers(session, competition.id)
        _queue(session, addresses, email_delivery.platform_failure_email(competition, submission))


def _notify_of_decision(session: Session, competition: Competition, event: str, data: dict[str, Any]) -> None:
    """Tell the organisers what waits for their decision; of a part, those of the competition that it is a part of."""
    webhooks.notify(session, competition.root_id, event, data)
    if outbox.sends_mail():
        addresses = notification_repository.addresses_of_organisers(session, competition.root_id)
        _queue(session, addresses, DECISIONS[event](competition, **data))


def _queue(session: Session, addresses: Sequence[str], email: EmailContent) -> None:
    outbox.queue_mails(session, addresses, subject=email.subject, body=email.body)
