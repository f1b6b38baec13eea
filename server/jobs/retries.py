"""Work that is tried until it is done: e-mails, webhook deliveries, metrics beside the score. It has no lease: a row is
due at a time, and whoever begins it counts an attempt and sets when the next one is due."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from sqlalchemy import ColumnElement, select, update
from sqlalchemy.orm import InstrumentedAttribute, Session

from server.db import changes_one_row
from server.models.evaluation import MetricResult
from server.models.notification import Delivery, DeliveryState, QueuedEmail

Row = TypeVar("Row", Delivery, QueuedEmail, MetricResult)


@dataclass(frozen=True)
class Retries(Generic[Row]):
    """The rows of one table. waits: the condition of those that are not done; time: the column of the next attempt."""

    table: type[Row]
    waits: ColumnElement[bool]
    time: InstrumentedAttribute[datetime]

    def due(self, session: Session, at: datetime, *, limit: int) -> Sequence[Row]:
        """Return rows whose time has come, the longest due first."""
        rows = select(self.table).where(self.waits, self.time <= at)
        return session.scalars(rows.order_by(self.time, self.table.id).limit(limit)).all()

    def begin(self, session: Session, row_id: int | str, attempts: int, *, until: datetime) -> bool:
        """Count an attempt; the next is due at `until`. attempts: so far. Return False if somebody else began one."""
        return self._change(session, row_id, attempts, {self.table.attempts: attempts + 1, self.time: until})

    def take_back(self, session: Session, row_id: int | str, attempts: int) -> None:
        """Count the attempt no more that `begin` counted: the host's fault ended it."""
        self._change(session, row_id, attempts + 1, {self.table.attempts: attempts})

    def postpone(self, session: Session, which: ColumnElement[bool], *, until: datetime) -> None:
        """Set the next time of rows that are not done."""
        session.execute(update(self.table).where(which, self.waits).values({self.time: until}))

    def _change(self, session: Session, row_id: int | str, attempts: int, values: dict[object, object]) -> bool:
        row = self.table.id == row_id, self.waits, self.table.attempts == attempts
        return changes_one_row(session, update(self.table).where(*row).values(values))


EMAILS = Retries(QueuedEmail, QueuedEmail.state == DeliveryState.WAITING.value, QueuedEmail.next_attempt_at)
DELIVERIES = Retries(Delivery, Delivery.state == DeliveryState.WAITING.value, Delivery.next_attempt_at)
METRICS = Retries(MetricResult, MetricResult.computed_at.is_(None), MetricResult.requested_at)
