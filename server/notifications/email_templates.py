"""The texts of the e-mails."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from server.models.competition import Competition
from server.models.submission import Submission
from server.notifications.outbox import page_url


@dataclass(frozen=True)
class EmailContent:
    """Subject and plain text of an e-mail."""

    subject: str
    body: str


def submission_email(
    competition: Competition, event: str, submission: Submission, *, tasks: Mapping[str, Mapping[str, str]]
) -> EmailContent:
    """Return the e-mail to a team when one of its submissions has ended. tasks: how it ended in each, if any."""
    what = f"Your submission {submission.filename} ({submission.id}) to {competition.title}"
    page = page_url(f"/submissions/{submission.id}")
    failed = [name for name, end in tasks.items() if end["stage"] == "failed"]
    scored = [name for name, end in tasks.items() if end["stage"] == "scored"]
    if event == "submission.scored" and failed:
        how = f"has been scored in {len(scored)} of {len(tasks)} tasks ({', '.join(scored)}); it failed in"
        subject = f"{competition.title}: a score, and {len(failed)} of {len(tasks)} tasks failed"
        return _declinable(subject, f"{what} {how} {', '.join(failed)}:\n{page}")
    if event == "submission.scored":
        return _declinable(f"{competition.title}: a score", f"{what} has been scored:\n{page}")
    free = " It does not count against your quota." if submission.refunded else ""
    return _declinable(f"{competition.title}: a failure", f"{what} has failed.{free} Details:\n{page}")


def platform_failure_email(competition: Competition, submission: Submission) -> EmailContent:
    """Return the e-mail to organisers when a submission fails by their fault or the host's."""
    page = page_url(f"/organise/{competition.slug}/submissions/{submission.id}")
    text = f"Submission {submission.id} to {competition.title} has failed, but not through its team's fault:\n{page}"
    return _declinable(f"{competition.title}: platform failure", text)


def unconfirmed_email(competition: Competition, *, submission: str, split: str) -> EmailContent:
    """Return the e-mail to organisers when a score takes no rank until they confirm it."""
    page = page_url(f"/organise/{competition.slug}/submissions/{submission}?split={split}")
    text = (
        f"The {split} score of submission {submission} to {competition.title} is unconfirmed: it takes no rank until "
        f"an organiser confirms it. Its page says why:\n{page}"
    )
    return _declinable(f"{competition.title}: a score to confirm", text)


def failed_final_email(competition: Competition, *, submission: str) -> EmailContent:
    """Return the e-mail to organisers when a final fails on the private split, and they must say what becomes of it."""
    page = page_url(f"/organise/{competition.slug}")
    text = (
        f"The final {submission} of {competition.title} has failed on the private split. The results wait until an "
        f"organiser excludes it, runs it again, or takes its team's next choice:\n{page}"
    )
    return _declinable(f"{competition.title}: a decision about a final", text)


def quarantine_email(competition: Competition, *, token_name: str) -> EmailContent:
    """Return the e-mail to organisers and administrators when a worker token is quarantined."""
    page = page_url(f"/organise/{competition.slug}/audit")
    text = (
        f"Trusted workers did not find what machines with the worker token {token_name} of {competition.title} "
        f"reported. The token is refused from now on, its results are dropped, and other workers run what it had run:"
        f"\n{page}"
    )
    return _declinable(f"{competition.title}: a worker token is quarantined", text)


def competition_email(competition: Competition, event: str, data: dict[str, Any]) -> EmailContent:
    """Return the e-mail to everybody in a competition."""
    title = competition.title
    if event == "competition.announced":
        page = page_url(f"/competitions/{competition.slug}")
        return _declinable(f"{title}: {data['title']}", f"{data['text']}\n\n{page}")
    board = page_url(f"/competitions/{competition.slug}/leaderboard")
    if event == "competition.closed":
        text = f"{title} has closed. The finals are now evaluated on the private split; their scores stay sealed until"
        return _declinable(f"{title} has closed", f"{text} they are revealed.\n{board}")
    return _declinable(f"{title}: the final leaderboard", f"The private scores of {title} are revealed:\n{board}")


def letter(competition: Competition, *, subject: str, text: str, path: str) -> EmailContent:
    """Return an e-mail about a competition that leads to one of its pages."""
    return _declinable(f"{competition.title}: {subject}", f"{text}\n\n{page_url(path)}")


def _declinable(subject: str, text: str) -> EmailContent:
    why = f"You take part in this competition, or organise it. Unsubscribe: {page_url('/account')}"
    return EmailContent(subject, f"{text}\n\n-- \n{why}\n")
