"""How a worker holds a shard: against the database it can reach, or over HTTP against a server it can only call.

Every step names the shard's attempt, and its answer says whether that attempt is still the current one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from sqlalchemy.orm import Session

from server.config import Settings
from server.db import Database
from server.evaluations import leases
from server.evaluations.claimed_shard import ClaimedShard, ShardFailure
from server.evaluations.kept_weights import weights_key
from server.models.evaluation import ShardKind
from server.storage import Storage
from server.workers import verification
from server.workers.verification import StoredCheck

T = TypeVar("T")
Logs = Sequence[tuple[int, str]]  # (run, what it printed)


class Leases(Protocol):
    """What a worker may do with a shard that it holds."""

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


@dataclass(frozen=True)
class DatabaseLeases:
    """Leases held directly in the database."""

    database: Database
    storage: Storage
    settings: Settings

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

        def step(session: Session) -> bool:
            closed = leases.close(
                session,
                shard,
                result_key=key,
                result_sha256=sha256,
                wall_time_s=wall_time_s,
                verified_share=self.settings.verified_share,
            )
            if closed:
                leases.keep_logs(session, shard, logs)
                if shard.attempt > 1:
                    verification.note_contradicted(session, shard.shard_id)
            return closed

        return self._step(step)

    def fail(self, shard: ClaimedShard, failure: ShardFailure, logs: Logs, *, runs_done: int) -> bool:
        def step(session: Session) -> bool:
            failed = leases.fail(session, shard, failure, runs_done=runs_done)
            if failed:
                leases.keep_logs(session, shard, logs)
                verification.note_failed_check(session, shard, failure)
            return failed

        return self._step(step)

    def give_back(self, shard: ClaimedShard, *, reason: str, runs_done: int) -> bool:
        limit = self.settings.max_attempts
        return self._step(
            lambda session: leases.give_back(session, shard, reason=reason, runs_done=runs_done, max_attempts=limit)
        )

    def hand_over(self, shard: ClaimedShard, *, runs_done: int) -> bool:
        return self._step(lambda session: leases.hand_over(session, shard, runs_done=runs_done))

    def end_if_over_time(self, shard: ClaimedShard, *, runs_done: int) -> bool:
        def step(session: Session) -> bool:
            return leases.is_over_time(session, shard) and leases.fail_over_time(session, shard, runs_done=runs_done)

        return self._step(step)

    def _step(self, step: Callable[[Session], T]) -> T:
        return self.database.retrying(step)
