"""The organisers' list of every team's submissions."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from server.models.competition import Competition
from server.models.submission import Submission
from server.submissions import organiser_list_repository as repository
from server.submissions.list_filter import SubmissionFilter
from server.submissions.organiser_list_repository import ListedSubmission

PAGE_SIZE = 100


@dataclass(frozen=True)
class SubmissionsPage:
    """One page of the list. has_more: whether there is another one."""

    lines: list[ListedSubmission]
    has_more: bool


def find_lines(session: Session, competition: Competition, wanted: SubmissionFilter, *, page: int) -> SubmissionsPage:
    """Return one page of the list (from 1), the newest first, with what a line shows of each submission."""
    found = repository.listed(session, competition.id, wanted, offset=(page - 1) * PAGE_SIZE, limit=PAGE_SIZE + 1)
    return SubmissionsPage(found[:PAGE_SIZE], has_more=len(found) > PAGE_SIZE)


def find_submissions(
    session: Session, competition: Competition, wanted: SubmissionFilter, *, page: int | None
) -> Sequence[Submission]:
    """Return every team's submissions that match, the newest first. page: from 1; None for all of them."""
    offset, limit = (0, None) if page is None else ((page - 1) * PAGE_SIZE, PAGE_SIZE)
    return repository.complete(session, competition.id, wanted, offset=offset, limit=limit)
