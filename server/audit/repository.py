"""Queries about the audit log."""

from collections.abc import Iterator, Sequence

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from server.audit.event_filter import EventFilter
from server.models.audit import AuditEvent

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
