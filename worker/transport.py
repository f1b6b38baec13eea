"""How a worker gets and holds shards: from the database it can reach, or over HTTP from a server it can only call.

Every step names the shard's attempt, and its answer says whether that attempt is still the current one.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import structlog
from sqlalchemy.orm import Session

from server.competitions.stored_file import UnreadableCompetition, unreadable
from server.config import Settings
from server.db import Database
from server.evaluations import leases
from server.evaluations.claimed_shard import ClaimedShard, ShardFailure
from server.evaluations.results import weights_key
from server.models.evaluation import ShardKind
from server.models.worker import WorkerFacts, WorkerState
from server.storage import Storage
from server.workers import registration, shard_steps, verification
from server.workers.registration import Fitting, fitting
from server.workers.verification import StoredCheck
from worker.host import graceful_shutdown
from worker.host.worker_info import missing_here

log = structlog.get_logger()
REPORT_EVERY_S = 20.0

T = TypeVar("T")
Logs = Sequence[tuple[int, str]]  # (run, what it printed)


class Leases(Protocol):
    """The steps of a lease that a worker holds."""

    def note_controls(self, shard: ClaimedShard, controls: dict[str, Any]) -> None: ...

    def heartbeat(self, shard: ClaimedShard, *, runs_done: int, wall_time_s: float) -> bool: ...

    def close(
        self, shard: ClaimedShard, result: bytes | None, logs: Logs, *, wall_time_s: float, weights: bytes | None = None
    ) -> bool:
        """Store that the shard is done. weights: of its first runs, which `result` names, where they are kept."""
        ...

    def fail(self, shard: ClaimedShard, failure: ShardFailure, logs: Logs, *, runs_done: int) -> bool: ...

    def give_back(self, shard: ClaimedShard, *, reason: str, runs_done: int) -> bool: ...

    def hand_over(self, shard: ClaimedShard, *, runs_done: int) -> bool: ...

    def end_if_over_time(self, shard: ClaimedShard, *, runs_done: int) -> bool: ...


class Transport(Leases, Protocol):
    """How a process asks for shards."""

    def claim(self) -> ClaimedShard | None:
        """Return the fairest shard that this worker fits, or None."""
        ...

    def report_out_of_service(self, state: WorkerState, reason: str) -> None: ...


@dataclass
class DatabaseTransport:
    """Shards from the database. Reports now and then that the process lives, and which splits refuse it."""

    database: Database
    storage: Storage
    settings: Settings
    facts: WorkerFacts
    _told: Fitting | None = None
    _said: tuple[WorkerState, str] = (WorkerState.STOPPED, "")
    _told_at: float = 0.0

    def claim(self) -> ClaimedShard | None:
        while True:
            known = set(unreadable)
            try:
                return self._step(self._claim)
            except UnreadableCompetition:  # from now on it is refused, and holds up no other
                if known == set(unreadable):
                    raise

    def report_out_of_service(self, state: WorkerState, reason: str) -> None:
        self._step(lambda session: self._tell(session, Fitting(()), state=state, detail=reason))

    def report(self) -> None:
        """Register this process again if the last registration is old: preparations are divided among known workers."""
        if not graceful_shutdown.is_asked():
            self._step(self._report)

    def seen(self) -> bool:
        """Heartbeat for work that is no shard. It never stops the work."""
        with self.database.write() as session:
            registration.note_seen(session, self.facts.name)
        return True

    def stop(self) -> None:
        """Report that this process takes no more work."""
        with self.database.write() as session:
            registration.report(session, self.facts, Fitting(()), state=WorkerState.STOPPED)

    def _claim(self, session: Session) -> ClaimedShard | None:
        fit, lease_s = self._report(session), self.settings.lease_s
        if fit is None:
            return None
        return leases.claim(session, worker=self.facts.name, lease_s=lease_s, splits=fit.splits)

    def _report(self, session: Session) -> Fitting | None:
        """Register this worker with the splits that it fits, and return it; None if it is cordoned."""
        if cordoned := registration.reason(session, self.facts.name):
            self._tell(session, Fitting(()), state=WorkerState.DRAINING, detail=cordoned)
            return None
        fit = fitting(session, self.facts, competitions=self.settings.competitions_served, says_all=True)
        if missing := missing_here(self.settings):
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
        registration.report(session, self.facts, fit, state=state, detail=detail)
        self._told, self._said, self._told_at = fit, said, time.monotonic()

    def note_controls(self, shard: ClaimedShard, controls: dict[str, Any]) -> None:
        self._step(lambda session: leases.note_controls(session, shard, controls))

    def heartbeat(self, shard: ClaimedShard, *, runs_done: int, wall_time_s: float) -> bool:
        with self.database.write() as session:  # not tried again: the next heartbeat comes soon
            return leases.heartbeat(
                session, shard, lease_s=self.settings.lease_s, runs_done=runs_done, wall_time_s=wall_time_s
            )

    def close(
        self, shard: ClaimedShard, result: bytes | None, logs: Logs, *, wall_time_s: float, weights: bytes | None = None
    ) -> bool:
        key, sha256 = None, None
        if result is not None:
            key = shard.result_key
            if weights is not None:
                self.storage.write(weights_key(key), weights)
            sha256 = self.storage.write(key, result)
            if shard.kind is ShardKind.CHECK:
                made = StoredCheck(key, sha256, result, wall_time_s)
                return verification.settle(self.database, self.storage, self.settings, shard, made)

        return self._step(
            lambda session: shard_steps.close(
                session, self.settings, shard, logs, result_key=key, result_sha256=sha256, wall_time_s=wall_time_s
            )
        )

    def fail(self, shard: ClaimedShard, failure: ShardFailure, logs: Logs, *, runs_done: int) -> bool:
        return self._step(lambda session: shard_steps.fail(session, shard, failure, logs, runs_done=runs_done))

    def give_back(self, shard: ClaimedShard, *, reason: str, runs_done: int) -> bool:
        return self._step(
            lambda session: shard_steps.give_back(session, self.settings, shard, reason=reason, runs_done=runs_done)
        )

    def hand_over(self, shard: ClaimedShard, *, runs_done: int) -> bool:
        return self._step(lambda session: shard_steps.hand_over(session, shard, runs_done=runs_done))

    def end_if_over_time(self, shard: ClaimedShard, *, runs_done: int) -> bool:
        return self._step(lambda session: shard_steps.end_if_over_time(session, shard, runs_done=runs_done))

    def _step(self, step: Callable[[Session], T]) -> T:
        return self.database.retrying(step)
