"""Leases of jobs: claimed, held by heartbeats, left, and taken back from silent workers; jobs that are tried again.
Written once for every table.

A step names the job's attempt, and changes nothing if that is no longer the current one. So a worker that was thought
dead, and is not, cannot disturb the one that took over.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, Generic, TypeVar

from sqlalchemy import ColumnElement, literal_column, select, update
from sqlalchemy.orm import InstrumentedAttribute, Session
from sqlalchemy.sql.dml import ReturningUpdate

from server.db import changes_one_row, database_time
from server.models.competition import Leased
from server.models.evaluation import MetricResult
from server.models.notification import Delivery, DeliveryState, QueuedEmail

Retried = TypeVar("Retried", Delivery, QueuedEmail, MetricResult)


@dataclass(frozen=True)
class Retries(Generic[Retried]):
    """The rows of one table. waits: the condition of those that are not done; time: the column of the next attempt."""

    table: type[Retried]
    waits: ColumnElement[bool]
    time: InstrumentedAttribute[datetime]

    def due(self, session: Session, at: datetime, *, limit: int) -> Sequence[Retried]:
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


Row = TypeVar("Row", bound=Leased)
AVOIDED_FOR_S = 60.0  # then the host that failed at a job may have it again


def claiming(
    table: type[Row], *conditions: ColumnElement[bool], state: str, lease_s: float, **values: Any
) -> ReturningUpdate[Row]:
    """Return the statement that leases the job which the conditions name, for its next attempt."""
    attempt, until = table.attempt + 1, database_time(lease_s)
    leased = update(table).where(*conditions).values(state=state, attempt=attempt, lease_expires_at=until, **values)
    return leased.returning(table)


def take(session: Session, statement: ReturningUpdate[Row], values: Mapping[str, object] | None = None) -> Row | None:
    """Run a statement of `claiming`. Return the job, None if no row meets the conditions."""
    options = {"synchronize_session": False, "populate_existing": True}
    return session.scalars(statement, values or {}, execution_options=options).one_or_none()


@dataclass(frozen=True)
class Loss:
    """How an attempt was lost. silent: its worker was not heard of; else a fault of its host."""

    attempt: int
    reason: str
    runs_done: int = 0
    silent: bool = False


class Jobs(ABC, Generic[Row]):
    """The jobs of one table: its states, and what follows a lost attempt."""

    table: type[Row]
    queued: ClassVar[str]  # where a lost job goes; a split stays in the same state, without a lease
    leased: ClassVar[str]
    failed: ClassVar[str]

    @abstractmethod
    def lock(self, session: Session, job: Row) -> None:
        """Lock what every step of related jobs locks first, so that no two of them wait for each other."""

    @abstractmethod
    def retry(self, session: Session, job: Row, loss: Loss, *, max_attempts: int) -> dict[str, Any] | None:
        """Return the columns of a job that is tried again, None if that was the last attempt."""

    @abstractmethod
    def on_requeued(self, session: Session, job: Row, loss: Loss) -> None:
        """Wake a worker for a job that is tried again."""

    @abstractmethod
    def on_given_up(self, session: Session, job: Row, loss: Loss) -> None:
        """End what the job belongs to."""

    def hold(self, session: Session, job_id: int | str, attempt: int, *, lease_s: float, **values: Any) -> bool:
        """Extend a lease. Return False if the attempt is no longer the current one."""
        return self.change(session, job_id, attempt, lease_expires_at=database_time(lease_s), **values)

    def leave(
        self, session: Session, job_id: int | str, attempt: int, *conditions: ColumnElement[bool], **values: Any
    ) -> bool:
        """End a lease. Return False if the attempt is no longer the current one."""
        return self.change(session, job_id, attempt, *conditions, lease_expires_at=None, **values)

    def change(
        self, session: Session, job_id: int | str, attempt: int, *conditions: ColumnElement[bool], **values: Any
    ) -> bool:
        mine = self._is_current(job_id, attempt)
        return changes_one_row(session, update(self.table).where(mine, *conditions).values(**values))

    def is_current(self, session: Session, job_id: int | str, attempt: int) -> bool:
        """Return whether the attempt still holds the job."""
        return session.scalar(select(self.table.id).where(self._is_current(job_id, attempt))) is not None

    def _is_current(self, job_id: int | str, attempt: int) -> ColumnElement[bool]:
        return (self.table.id == job_id) & (self.table.attempt == attempt) & self._is_leased()

    def lose(
        self, session: Session, job: Row, loss: Loss, *, max_attempts: int, expired_before: datetime | None = None
    ) -> bool:
        """Count a failed attempt: queued again, or given up after `max_attempts`. Return False if it is not current."""
        self.lock(session, job)
        over = () if expired_before is None else (self.table.lease_expires_at < expired_before,)
        again = self.retry(session, job, loss, max_attempts=max_attempts)
        values = {"failed_attempts": job.failed_attempts + 1, "state": self.failed if again is None else self.queued}
        if not self.leave(session, job.id, loss.attempt, *over, **values | (again or {})):
            return False
        (self.on_given_up if again is None else self.on_requeued)(session, job, loss)
        return True

    def sweep(self, session: Session, at: datetime, *, max_attempts: int, lease_s: float | None = None) -> int:
        """Take back the jobs whose lease is over. Return how many.

        at: this moment by the database's clock. lease_s: the longest lease there can be; one that ends later was given
        before the clock was set back, would outlive a dead worker, and is shortened.
        """
        if lease_s is not None:
            latest = at + timedelta(seconds=lease_s)
            too_late = self._is_leased() & (self.table.lease_expires_at > latest)
            session.execute(update(self.table).where(too_late).values(lease_expires_at=latest))
        expired = session.scalars(select(self.table).where(self._is_leased(), self.table.lease_expires_at < at)).all()
        return sum(
            self.lose(session, job, self.silence(job), max_attempts=max_attempts, expired_before=at) for job in expired
        )

    def silence(self, job: Row) -> Loss:
        """Return the loss of a job whose worker has sent no heartbeat in time."""
        reason = f"no heartbeat from {getattr(job, 'worker', 'its worker')} before {job.lease_expires_at}"
        return Loss(job.attempt, reason, runs_done=getattr(job, "runs_done", 0), silent=True)

    def _is_leased(self) -> ColumnElement[bool]:
        # As the partial indexes have it: a bound parameter would keep a prepared statement from using them.
        return self.table.state == literal_column(f"'{self.leased}'")
