"""Queries for organisers: the audit log, announcements, and what a change would affect."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from server.admin.event_filter import EventFilter
from server.models.account import Account
from server.models.audit import AuditEvent
from server.models.competition import Membership, Team
from server.models.rejudging import Announcement
from server.models.submission import ENDED, Submission

STREAMED_ROWS = 500


def events(session: Session, wanted: EventFilter, *, before_id: int | None, limit: int) -> Sequence[AuditEvent]:
    """Return events, the newest first, older than `before_id`."""
    statement = _events(wanted)
    if before_id is not None:
        statement = statement.where(AuditEvent.id < before_id)
    return session.scalars(statement.order_by(AuditEvent.id.desc()).limit(limit)).all()


def events_page(session: Session, wanted: EventFilter, *, offset: int, limit: int) -> Sequence[AuditEvent]:
    """Return some events, the newest first."""
    newest = _events(wanted).order_by(AuditEvent.at.desc(), AuditEvent.id.desc())
    return session.scalars(newest.offset(offset).limit(limit)).all()


def actions(session: Session, competition_id: str) -> Sequence[str]:
    """Return the actions that the competition's log holds, by name."""
    rows = session.scalars(select(AuditEvent.action).where(AuditEvent.competition_id == competition_id).distinct())
    return sorted(rows)


def every_event(session: Session, wanted: EventFilter) -> Iterator[AuditEvent]:
    """Yield events in the order in which they happened, a few at a time."""
    return iter(session.scalars(_events(wanted).order_by(AuditEvent.id).execution_options(yield_per=STREAMED_ROWS)))


def announcements(session: Session, competition_id: str) -> Sequence[tuple[Announcement, str]]:
    """Return the announcements, the newest first, each with its author's name."""
    statement = (
        select(Announcement, Account.name)
        .join(Account, Account.id == Announcement.author_id)
        .where(Announcement.competition_id == competition_id)
        .order_by(Announcement.created_at.desc(), Announcement.id)
    )
    return [(row, author) for row, author in session.execute(statement)]


def used_per_team(session: Session, competition_id: str, *, since: datetime | None = None) -> dict[str, int]:
    """Return how many submissions count against each team's quota, by the team's name."""
    statement = (
        select(Team.name, func.count())
        .join(Submission, Submission.team_id == Team.id)
        .where(Submission.competition_id == competition_id, Submission.refunded.is_(False))
        .group_by(Team.id, Team.name)
        .order_by(Team.name)
    )
    if since is not None:
        statement = statement.where(Submission.received_at >= since)
    return {row[0]: row[1] for row in session.execute(statement)}


def people_per_team(session: Session, competition_id: str) -> dict[str, int]:
    statement = (
        select(Team.name, func.count())
        .join(Membership, Membership.team_id == Team.id)
        .where(Team.competition_id == competition_id)
        .group_by(Team.id, Team.name)
        .order_by(Team.name)
    )
    return {row[0]: row[1] for row in session.execute(statement)}


def chosen_per_team(session: Session, competition_id: str) -> dict[str, int]:
    statement = (
        select(Team.name, func.count())
        .join(Submission, Submission.team_id == Team.id)
        .where(Submission.competition_id == competition_id, Submission.selected.is_(True))
        .group_by(Team.id, Team.name)
        .order_by(Team.name)
    )
    return {row[0]: row[1] for row in session.execute(statement)}


def unfinished(session: Session, competition_id: str) -> int:
    waiting = Submission.competition_id == competition_id, Submission.stage.not_in(ENDED)
    return session.scalar(select(func.count()).select_from(Submission).where(*waiting)) or 0


def _events(wanted: EventFilter) -> Select[AuditEvent]:
    statement = select(AuditEvent)
    same = {
        AuditEvent.competition_id: wanted.competition_id,
        AuditEvent.action: wanted.action,
        AuditEvent.actor: wanted.actor,
        AuditEvent.subject: wanted.subject,
    }
    statement = statement.where(*(column == value for column, value in same.items() if value is not None))
    if wanted.since is not None:
        statement = statement.where(AuditEvent.at >= wanted.since)
    if wanted.until is not None:
        statement = statement.where(AuditEvent.at < wanted.until)
    return statement
