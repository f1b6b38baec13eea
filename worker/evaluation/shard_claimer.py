"""Asking for a shard: of the splits that this worker fits, if nothing takes it out of service."""

import time

import structlog
from sqlalchemy.orm import Session

from server.competitions.stored_file import UnreadableCompetition, unreadable
from server.evaluations import leases
from server.evaluations.claimed_shard import ClaimedShard
from server.models.worker import WorkerState
from server.workers import cordons
from server.workers import service as workers
from server.workers.compatibility import Fitting, fitting
from worker.context import WorkerContext
from worker.host import canary, graceful_shutdown
from worker.host.sandbox_requirements import missing_here

log = structlog.get_logger()
REPORT_EVERY_S = 20.0


class Claimant:
    """Claims for one process, and tells the database now and then that the process lives and what refuses it."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._competitions = context.settings.competitions_served
        self._told: Fitting | None = None
        self._said = (WorkerState.STOPPED, "")
        self._told_at = 0.0

    def claim(self) -> ClaimedShard | None:
        """Return the fairest shard that this worker fits, or None."""
        if graceful_shutdown.is_asked():
            return None
        if state := canary.out_of_service(self._context.cooling, self._context.settings):
            self._context.database.retrying(
                lambda session: self._tell(session, Fitting(()), state=state, detail=self._context.cooling.reason)
            )
            return None
        while True:
            known = set(unreadable)
            try:
                return self._context.database.retrying(self._claim)
            except UnreadableCompetition:  # from now on it is refused, and holds up no other
                if known == set(unreadable):
                    raise

    def report(self) -> None:
        """Say what this process is, if it has not done so of late: preparations are shared among those known."""
        if not graceful_shutdown.is_asked():
            self._context.database.retrying(self._report)

    def seen(self) -> bool:
        """Heartbeat for work that is no shard. It never stops the work."""
        with self._context.database.write() as session:
            workers.note_seen(session, self._context.name)
        return True

    def stop(self) -> None:
        """Report that this process takes no more work."""
        with self._context.database.write() as session:
            workers.report(session, self._context.facts, Fitting(()), state=WorkerState.STOPPED)

    def _claim(self, session: Session) -> ClaimedShard | None:
        context, fit = self._context, self._report(session)
        if fit is None:
            return None
        return leases.claim(session, worker=context.name, lease_s=context.settings.lease_s, splits=fit.splits)

    def _report(self, session: Session) -> Fitting | None:
        """Say which splits this worker fits, and return it; None for a worker that is cordoned."""
        context = self._context
        if cordoned := cordons.reason(session, context.name):
            self._tell(session, Fitting(()), state=WorkerState.DRAINING, detail=cordoned)
            return None
        fit = fitting(session, context.facts, competitions=self._competitions, says_all=True)
        if missing := missing_here(context.settings):
            fit = Fitting((), dict.fromkeys((*fit.splits, *fit.refusals), " ".join(missing)))
        self._tell(session, fit)
        return fit

    def _tell(
        self, session: Session, fit: Fitting, *, state: WorkerState = WorkerState.ACTIVE, detail: str = ""
    ) -> None:
        said = (state, detail)
        if self._said == said and self._told == fit and time.monotonic() < self._told_at + REPORT_EVERY_S:
            return
        for reason in fit.refusals.values():
            if self._told is None or reason not in self._told.refusals.values():
                log.warning("this worker does not fit a split", reason=reason)
        workers.report(session, self._context.facts, fit, state=state, detail=detail)
        self._told, self._said, self._told_at = fit, said, time.monotonic()
