"""The organisers' list of every team's submissions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy.orm import Session

from server.competitions.stored_file import stored_file
from server.disclosure import gate
from server.evaluations import parts
from server.leaderboard import combination
from server.models.competition import Competition
from server.models.submission import Stage, Submission
from server.submissions import organiser_list_repository
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
    rows = organiser_list_repository.listed(
        session, competition.id, wanted, offset=(page - 1) * PAGE_SIZE, limit=PAGE_SIZE + 1
    )
    lines = rows[:PAGE_SIZE]
    if stored_file(competition).tasks:
        lines = _with_parts(session, competition, lines)
    return SubmissionsPage(lines, has_more=len(rows) > PAGE_SIZE)


def _with_parts(
    session: Session, competition: Competition, lines: Sequence[ListedSubmission]
) -> list[ListedSubmission]:
    """Return the lines with what became of each submission in the tasks."""
    by_submission = parts.of(session, [line.submission.id for line in lines])
    scores = organiser_list_repository.public_scores(
        session, [part.id for own in by_submission.values() for part in own]
    )
    file = stored_file(competition)
    return [
        replace(
            line,
            score=combination.of_one(
                {task_of(part): gate.show_score(scores[part.id].value) for part in own if part.id in scores}, file
            ),
            is_unconfirmed=any(scores[part.id].is_unconfirmed for part in own if part.id in scores),
            doubt=next(
                (d for part in own if part.id in scores and (d := scores[part.id].doubt) and d.is_suspect), None
            ),
            failures={task_of(part): str(part.error_class) for part in own if part.stage == Stage.FAILED},
        )
        if (own := by_submission.get(line.submission.id))
        else line
        for line in lines
    ]


def task_of(part: Submission) -> str:
    return str(part.competition.task_name)


def same_file_teams(session: Session, submission: Submission) -> Sequence[str]:
    """Return the names of the other teams that sent the same file."""
    return organiser_list_repository.same_file_teams(session, [submission.id]).get(submission.id, ())


def teams_by_file(session: Session, submissions: Sequence[Submission]) -> dict[str, list[str]]:
    """Return the names of the other teams that sent the same file, by submission id."""
    return organiser_list_repository.same_file_teams(session, [each.id for each in submissions])


def same_files(session: Session, competition: Competition) -> list[list[str]]:
    """Return the teams that sent the same file, for each such file."""
    return organiser_list_repository.same_files(session, competition.id)


def find_submissions(
    session: Session, competition: Competition, wanted: SubmissionFilter, *, page: int | None
) -> Sequence[Submission]:
    """Return every team's submissions that match, the newest first. page: from 1; None for all of them."""
    offset, limit = (0, None) if page is None else ((page - 1) * PAGE_SIZE, PAGE_SIZE)
    return organiser_list_repository.complete(session, competition.id, wanted, offset=offset, limit=limit)
