"""The audit log: what was done, by whom, about what, why. Rows are only ever added."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from server.models.account import Account, AuditEvent
from server.models.competition import Competition, Team
from server.models.evaluation import Rejudging
from server.models.submission import Submission
from server.models.worker import WorkerToken

About = Competition | Team | Submission | Rejudging | WorkerToken
SYSTEM = "system"
PAGE_SIZE = 100


@dataclass(frozen=True)
class EventFilter:
    """Which audit events are wanted. None: all."""

    competition_id: str | None = None
    action: str | None = None
    actor: str | None = None
    subject: str | None = None
    since: datetime | None = None
    until: datetime | None = None


def record(
    session: Session,
    actor: Account | None,
    action: str,
    about: About | None = None,
    *,
    competition: Competition | str | None = None,
    subject: str = "",
    reason: str = "",
    data: dict[str, Any] | None = None,
) -> AuditEvent:
    """Add an event to the session, so that it is committed with the act. actor: None for automatic acts.

    action: noun.past_participle, e.g. `submission.received`. about: what names both subject and competition.
    """
    if isinstance(about, Competition):
        competition, subject = about, about.slug
    elif about is not None:
        competition, subject = about.competition_id, about.id
    event = AuditEvent(
        actor_id=actor.id if actor else None,
        actor=actor.name if actor else SYSTEM,
        competition_id=competition.id if isinstance(competition, Competition) else competition,
        action=action,
        subject=subject,
        reason=reason,
        data=data or {},
    )
    session.add(event)
    return event


def events(
    session: Session, wanted: EventFilter, *, before_id: int | None = None, limit: int = 100
) -> Sequence[AuditEvent]:
    """Return events, the newest first; `before_id` is the last one of the page before."""
    statement = _events(wanted)
    if before_id is not None:
        statement = statement.where(AuditEvent.id < before_id)
    return session.scalars(statement.order_by(AuditEvent.id.desc()).limit(limit)).all()


def events_page(session: Session, wanted: EventFilter, *, page: int) -> tuple[Sequence[AuditEvent], bool]:
    """Return one page of events (from 1), the newest first, and whether there is another page."""
    newest = _events(wanted).order_by(AuditEvent.at.desc(), AuditEvent.id.desc())
    rows = session.scalars(newest.offset((page - 1) * PAGE_SIZE).limit(PAGE_SIZE + 1)).all()
    return rows[:PAGE_SIZE], len(rows) > PAGE_SIZE


def actions(session: Session, competition: Competition) -> Sequence[str]:
    """Return the actions that the competition's log holds, by name."""
    rows = session.scalars(select(AuditEvent.action).where(AuditEvent.competition_id == competition.id).distinct())
    return sorted(rows)


def _events(wanted: EventFilter) -> Select[AuditEvent]:
    same = {
        AuditEvent.competition_id: wanted.competition_id,
        AuditEvent.action: wanted.action,
        AuditEvent.actor: wanted.actor,
        AuditEvent.subject: wanted.subject,
    }
    statement = select(AuditEvent).where(*(column == value for column, value in same.items() if value is not None))
    if wanted.since is not None:
        statement = statement.where(AuditEvent.at >= wanted.since)
    if wanted.until is not None:
        statement = statement.where(AuditEvent.at < wanted.until)
    return statement
