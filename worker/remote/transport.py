"""Shards over HTTP, by the rules of the database."""

import hashlib
import json
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog

from lethe.errors import AppError, HostFault
from lethe.evaluation.shard_outputs import ShardOutputs
from server.evaluations.claimed_shard import ClaimedShard, ShardFailure
from server.models.evaluation import ShardKind
from server.models.worker import WorkerFacts, WorkerState
from worker.host import graceful_shutdown
from worker.remote.client import NotHeld, TokenRefused, WorkerApi
from worker.split_storage.split_cache import SplitCache
from worker.transport import REPORT_EVERY_S, Logs

log = structlog.get_logger()
MAX_LOG_BYTES = 768 << 10  # as JSON, of all logs of a shard together
MAX_LENGTHS = {"message": 2000, "exception_type": 200, "file": 500, "detail": 10_000, "class_message": 2000}


@dataclass
class HttpTransport:
    """Shards that a server gives. A token that is refused, or a server that is away, loses the shard."""

    api: WorkerApi
    facts: WorkerFacts
    terms: dict[str, Any] = field(default_factory=dict)
    is_registered: bool = False
    _said: tuple[WorkerState, str] | None = None  # why it takes nothing, as the server was told
    _said_at: float = 0.0
    _draining_told: bool = False

    def claim(self) -> ClaimedShard | None:
        if not self.is_registered or self._said is not None:
            self._register()
        return self.api.claim()

    def report_out_of_service(self, state: WorkerState, reason: str) -> None:
        said = (state, reason)
        if self._said != said or time.monotonic() > self._said_at + REPORT_EVERY_S:
            self.api.set_state(*said)
            self._said, self._said_at = said, time.monotonic()

    def _register(self) -> None:
        known = self.terms.get("refusals", ())
        self.terms = self.api.register(self.facts)
        for reason in self.terms["refusals"]:
            if reason not in known:
                log.warning("this worker does not fit a split", reason=reason)
        self.is_registered, self._said = True, None
        log.info("registered", server=self.api.url, worker=self.facts.name)

    def note_controls(self, shard: ClaimedShard, controls: dict[str, Any]) -> None:
        self.api.step(shard, "PUT", "controls", body={"controls": controls})

    def heartbeat(self, shard: ClaimedShard, *, runs_done: int, wall_time_s: float) -> bool:
        body = {"runs_done": runs_done, "wall_time_s": wall_time_s}
        try:
            if graceful_shutdown.is_asked() and not self._draining_told:
                self._draining_told = True
                self.api.set_state("draining")
            return self.api.step(shard, "PUT", "lease", body=body, within_s=0.0)  # the next heartbeat comes soon
        except (TokenRefused, NotHeld) as error:
            log.warning("lease lost", reason=error.detail)
            return False

    def close(
        self, shard: ClaimedShard, result: bytes | None, logs: Logs, *, wall_time_s: float, weights: bytes | None = None
    ) -> bool:
        try:
            if weights is not None:
                self.api.send_weights(shard, weights)
            if shard.kind is not ShardKind.SMOKE and result is not None:
                return self.api.send_result(shard, replace(ShardOutputs.from_bytes(result), cpu_time_s=None).to_bytes())
            answers = {} if result is None else {"answers": json.loads(result)}
            body = {"wall_time_s": wall_time_s, "logs": logs_as_data(logs), **answers}
            return self.api.step(shard, "POST", "passed", body=body)
        except (TokenRefused, NotHeld) as error:
            log.warning("result refused", reason=error.detail)
            return False

    def fail(self, shard: ClaimedShard, failure: ShardFailure, logs: Logs, *, runs_done: int) -> bool:
        told = asdict(failure)
        for name, length in MAX_LENGTHS.items():
            told[name] = told[name] and told[name][:length]
        return self._tell(shard, "failure", told | {"runs_done": runs_done, "logs": logs_as_data(logs)})

    def give_back(self, shard: ClaimedShard, *, reason: str, runs_done: int) -> bool:
        return self._tell(shard, "give-back", {"reason": reason[:2000], "runs_done": runs_done})

    def hand_over(self, shard: ClaimedShard, *, runs_done: int) -> bool:
        return self._tell(shard, "hand-over", {"runs_done": runs_done})

    def end_if_over_time(self, shard: ClaimedShard, *, runs_done: int) -> bool:
        return self._tell(shard, "over-time", {"runs_done": runs_done})

    def _tell(self, shard: ClaimedShard, step: str, body: dict[str, Any]) -> bool:
        """Give up a shard. If the server cannot be reached, the lease expires."""
        try:
            return self.api.step(shard, "POST", step, body=body)
        except AppError as error:
            log.warning("the server was not told", step=step, reason=error.detail)
            return False


def logs_as_data(logs: Logs) -> list[dict[str, Any]]:
    """Return the logs, the last ones first where all are too much, each cut to what one request may hold."""
    data: list[dict[str, Any]] = []
    room = MAX_LOG_BYTES
    for run, text in reversed(logs):
        cut = text[:room]
        while len(json.dumps(cut)) > room:
            cut = cut[: len(cut) // 2]
        room -= len(json.dumps(cut))
        data.insert(0, {"run": run, "text": cut})
        if room <= 0:
            break
    return data


@dataclass(frozen=True)
class ServedSplit:
    """The split of a shard that this worker holds."""

    api: WorkerApi
    shard: ClaimedShard

    @property
    def label(self) -> str:
        return self.shard.split_key

    def manifest(self, sha256: str) -> bytes:
        return _verified(self.api, self.shard, sha256, what=f"manifest of {self.label}")

    def download(self, name: str, sha256: str, path: Path) -> None:
        self.api.download(self.shard, sha256, path)


@dataclass(frozen=True)
class ServedArtefacts:
    """Files from a server that this worker can only call."""

    api: WorkerApi
    cache: SplitCache

    def package(self, shard: ClaimedShard) -> bytes:
        return _verified(self.api, shard, shard.content_sha256, what=f"submission {shard.submission_id}")

    def split(self, shard: ClaimedShard) -> Path:
        return self.cache.get(ServedSplit(self.api, shard), shard.manifest_sha256)

    def split_file(self, shard: ClaimedShard, name: str) -> Path:
        return self.cache.get_file(ServedSplit(self.api, shard), shard.manifest_sha256, name)

    def repair_split(self, shard: ClaimedShard) -> list[str]:
        return self.cache.repair(ServedSplit(self.api, shard), shard.manifest_sha256)


def _verified(api: WorkerApi, shard: ClaimedShard, sha256: str, *, what: str) -> bytes:
    data = api.file(shard, sha256)
    digest = hashlib.sha256(data).hexdigest()
    if digest != sha256:
        raise HostFault(f"the server gave a damaged {what}: SHA-256 {digest}, expected {sha256}")
    return data
