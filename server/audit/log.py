"""The audit log: what was done, by whom, about what, why. Rows are only ever added."""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy.orm import Session

from server.audit import repository
from server.audit.event_filter import EventFilter
from server.models.account import Account
from server.models.audit import AuditEvent
from server.models.competition import Competition

SYSTEM = "system"
PAGE_SIZE = 100


def record(
    session: Session,
    actor: Account | None,
    action: str,
    *,
    competition: Competition | str | None = None,
    subject: str = "",
    reason: str = "",
    data: dict[str, Any] | None = None,
) -> AuditEvent:
    """Add one event to the session, so that it is stored with the act or not at all.

    actor: None for what happens by itself. action: noun.past_participle, e.g. `submission.received`.
    """
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
    return repository.events(session, wanted, before_id=before_id, limit=limit)


def events_page(session: Session, wanted: EventFilter, *, page: int) -> tuple[Sequence[AuditEvent], bool]:
    """Return one page of events (from 1), the newest first, and whether there is another page."""
    found = repository.events_page(session, wanted, offset=(page - 1) * PAGE_SIZE, limit=PAGE_SIZE + 1)
    return found[:PAGE_SIZE], len(found) > PAGE_SIZE


def actions(session: Session, competition: Competition) -> Sequence[str]:
    """Return the actions that the competition's log holds, by name."""
    return repository.actions(session, competition.id)


def every_event(session: Session, wanted: EventFilter) -> Iterator[AuditEvent]:
    """Yield events in the order in which they happened, a few at a time."""
    return repository.every_event(session, wanted)
