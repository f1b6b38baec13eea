"""Queries for organisers: announcements, and what a change would affect."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from server.models.account import Account
from server.models.competition import Competition, Membership, Team
from server.models.rejudging import Announcement
from server.models.submission import ENDED, Submission


def announcements(session: Session, competition: Competition) -> Sequence[tuple[Announcement, str]]:
    """Return the announcements, the newest first, each with its author's name."""
    statement = (
        select(Announcement, Account.name)
        .join(Account, Account.id == Announcement.author_id)
        .where(Announcement.competition_id == competition.id)
        .order_by(Announcement.created_at.desc(), Announcement.id)
    )
    return [(row, author) for row, author in session.execute(statement)]


def used_per_team(
    session: Session, competition_id: str, *, since: datetime | None = None
) -> dict[tuple[str, str], int]:
    """Return how many submissions count against each team's quota of each phase, by the team's id and the phase."""
    counted = select(Submission.team_id, Submission.phase, func.count())
    counted = counted.where(Submission.competition_id == competition_id, Submission.refunded.is_(False))
    if since is not None:
        counted = counted.where(Submission.received_at >= since)
    rows = session.execute(counted.group_by(Submission.team_id, Submission.phase))
    return {(team_id, phase): n for team_id, phase, n in rows}


def people_per_team(session: Session, competition_id: str) -> dict[str, int]:
    people = select(Team.name, func.count()).join(Membership, Membership.team_id == Team.id)
    return _by_team(session, people.where(Team.competition_id == competition_id))


def chosen_per_team(session: Session, competition_id: str) -> dict[str, int]:
    chosen = select(Team.name, func.count()).join(Submission, Submission.team_id == Team.id)
    return _by_team(session, chosen.where(Submission.competition_id == competition_id, Submission.selected.is_(True)))


def _by_team(session: Session, counted: Select[str, int]) -> dict[str, int]:
    return dict(session.execute(counted.group_by(Team.id, Team.name).order_by(Team.name)).all())


def unfinished(session: Session, competition_id: str) -> int:
    waiting = Submission.competition_id == competition_id, Submission.stage.not_in(ENDED)
    return session.scalar(select(func.count()).select_from(Submission).where(*waiting)) or 0


def phases_with_submissions(session: Session, competition_id: str) -> frozenset[str]:
    """Return the names of the phases to which something was submitted."""
    names = select(Submission.phase).where(Submission.competition_id == competition_id).distinct()
    return frozenset(session.scalars(names))
