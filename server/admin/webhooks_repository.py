"""Queries about webhooks and their deliveries."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.engine import CursorResult
from sqlalchemy.orm import Session

from server.models.notification import Delivery, DeliveryState, Webhook


def of_competition(session: Session, competition_id: str) -> Sequence[Webhook]:
    """Return the webhooks that are not disabled, the earliest first."""
    mine = Webhook.competition_id == competition_id, Webhook.disabled_at.is_(None)
    return session.scalars(select(Webhook).where(*mine).order_by(Webhook.created_at, Webhook.id)).all()


def by_id(session: Session, webhook_id: str) -> Webhook | None:
    return session.get(Webhook, webhook_id)


def deliveries(session: Session, webhook_id: str, *, limit: int) -> Sequence[Delivery]:
    mine = select(Delivery).where(Delivery.webhook_id == webhook_id)
    return session.scalars(mine.order_by(Delivery.created_at.desc(), Delivery.id).limit(limit)).all()


def due(session: Session, at: datetime, *, limit: int) -> Sequence[Delivery]:
    waiting = Delivery.state == DeliveryState.WAITING.value, Delivery.next_attempt_at <= at
    return session.scalars(select(Delivery).where(*waiting).order_by(Delivery.next_attempt_at).limit(limit)).all()


def take(session: Session, delivery: Delivery, *, until: datetime) -> bool:
    """Take one attempt at a delivery. Return False if somebody else has it."""
    result = session.execute(
        update(Delivery)
        .where(
            Delivery.id == delivery.id,
            Delivery.state == DeliveryState.WAITING.value,
            Delivery.attempts == delivery.attempts,
        )
        .values(attempts=Delivery.attempts + 1, next_attempt_at=until)
        .execution_options(synchronize_session=False)
    )
    return isinstance(result, CursorResult) and result.rowcount == 1


def end(session: Session, delivery_id: str, *, state: DeliveryState, error: str) -> None:
    session.execute(update(Delivery).where(Delivery.id == delivery_id).values(state=state.value, error=error))


def note_error(session: Session, delivery_id: str, error: str) -> None:
    session.execute(update(Delivery).where(Delivery.id == delivery_id).values(error=error))
