"""The words of the e-mails."""

from dataclasses import dataclass
from typing import Any

from server.models.competition import Competition
from server.models.submission import Fault, Submission
from server.notifications.mail import link


@dataclass(frozen=True)
class Words:
    """Subject and plain text of an e-mail."""

    subject: str
    body: str


def of_submission(competition: Competition, event: str, submission: Submission) -> Words:
    """Return what a team is told when one of its submissions has ended."""
    what = f"Your submission {submission.filename} ({submission.id}) to {competition.title}"
    page = link(f"/submissions/{submission.id}")
    if event == "submission.scored":
        return _declinable(f"{competition.title}: a score", f"{what} has its score:\n{page}")
    free = "" if submission.fault == Fault.PARTICIPANT else " It does not count against your quota."
    return _declinable(f"{competition.title}: a failure", f"{what} has failed.{free} What is known of it:\n{page}")


def of_our_fault(competition: Competition, submission: Submission) -> Words:
    """Return what organisers are told when a submission fails by their fault or the host's."""
    page = link(f"/organise/{competition.slug}/submissions/{submission.id}")
    text = f"Submission {submission.id} to {competition.title} has failed, and not by its team's fault:\n{page}"
    return _declinable(f"{competition.title}: a failure of ours", text)


def of_competition(competition: Competition, event: str, data: dict[str, Any]) -> Words:
    """Return what everybody in a competition is told."""
    title = competition.title
    if event == "competition.announced":
        page = link(f"/competitions/{competition.slug}")
        return _declinable(f"{title}: {data['title']}", f"{data['text']}\n\n{page}")
    board = link(f"/competitions/{competition.slug}/leaderboard")
    if event == "competition.closed":
        text = f"{title} has closed. The finals are now evaluated on the private split; their scores stay sealed until"
        return _declinable(f"{title} has closed", f"{text} they are revealed.\n{board}")
    return _declinable(f"{title}: the final leaderboard", f"The private scores of {title} are revealed:\n{board}")


def _declinable(subject: str, text: str) -> Words:
    why = f"You take part in this competition, or organise it. No more such mail: {link('/account')}"
    return Words(subject, f"{text}\n\n-- \n{why}\n")
