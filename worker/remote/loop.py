"""One process of a remote worker: register, claim, run, until it is asked to stop or is refused."""

import random
import time
from collections.abc import Callable

import structlog

from lethe.errors import AppError, HostFault
from server.config import Settings
from server.evaluations.claimed_shard import ClaimedShard
from server.models.worker import WorkerState
from server.worker_facts import WorkerFacts
from worker.context import RunningContext
from worker.evaluation import shard_pipeline
from worker.host import canary, graceful_shutdown, prometheus
from worker.host.worker_info import worker_facts
from worker.remote.artefacts import ServedArtefacts
from worker.remote.client import TokenRefused, WorkerApi, WorkerRefused
from worker.remote.leases import HttpLeases
from worker.split_storage.split_cache import SplitCache

log = structlog.get_logger()
STOPPED, REFUSED = 0, 4  # how a process ends
MAX_DELAY_S = 60.0
REPORT_EVERY_S = 20.0
LOOK_EVERY_S = 0.1

Run = Callable[[RunningContext, ClaimedShard], str]


class RemoteWorker:
    """Serves shards of one server with one token."""

    def __init__(
        self, settings: Settings, api: WorkerApi, facts: WorkerFacts, *, run: Run = shard_pipeline.run_shard
    ) -> None:
        self._settings, self._api, self._facts, self._run = settings, api, facts, run
        self._context: RunningContext | None = None
        self._poll_s = settings.sweep_interval_s
        self._refusals: list[str] = []
        self._registered = False
        self._said: tuple[WorkerState, str] | None = None  # why it takes nothing, as the server was told
        self._said_at = 0.0

    def serve(self) -> int:
        """Run shards until a stop is asked for (STOPPED) or the server refuses token or worker (REFUSED)."""
        failures = 0
        try:
            while not graceful_shutdown.is_asked():
                try:
                    worked = self._step()
                except (TokenRefused, WorkerRefused) as error:
                    log.warning("refused", server=self._api.url, reason=error.detail)
                    return REFUSED
                except HostFault as error:  # after that the server may not know this worker any more
                    failures += 1
                    self._registered = False
                    pause_s = min(2.0**failures, MAX_DELAY_S)
                    log.warning("the server is away", reason=error.detail, pause_s=pause_s)
                    _wait(pause_s)
                    continue
                failures = 0
                if not worked:
                    _wait(self._poll_s)
            return STOPPED
        finally:
            self._leave()

    def _step(self) -> bool:
        """Register if that is due, and run a shard if there is one. Return whether there was."""
        if not self._registered:
            self._register()
        context = self._context
        if context is None or self._is_out_of_service(context):
            return False
        shard = self._api.claim()
        prometheus.CLAIMS.labels("nothing" if shard is None else "shard").inc()
        if shard is None:
            return False
        with structlog.contextvars.bound_contextvars(
            request_id=shard.request_id, submission=shard.submission_id, shard=shard.shard_id, attempt=shard.attempt
        ):
            log.info("shard claimed", kind=shard.kind.value)
            self._run_shard(context, shard)
        return True

    def _is_out_of_service(self, context: RunningContext) -> bool:
        """Return whether this host takes nothing now, and tell the server so; once it does, it registers again."""
        state = canary.out_of_service(context.cooling, context.settings)
        if state is None:
            if self._said is not None:
                self._register()
            return False
        said = (state, context.cooling.reason)
        if self._said != said or time.monotonic() > self._said_at + REPORT_EVERY_S:
            self._api.set_state(*said)
            self._said, self._said_at = said, time.monotonic()
        return True

    def _run_shard(self, context: RunningContext, shard: ClaimedShard) -> None:
        try:
            with prometheus.SHARD_SECONDS.time():
                end = self._run(context, shard)
        except AppError as error:
            end = "lost"
            log.warning("shard lost", reason=error.detail)
        except Exception:
            end = "lost"
            log.exception("shard lost")
        prometheus.SHARDS.labels(end).inc()

    def _register(self) -> None:
        terms = self._api.register(self._facts)
        changes = {"lease_s": float(terms["lease_s"]), "heartbeat_s": float(terms["heartbeat_s"])}
        settings = self._settings.model_copy(update=changes)
        self._poll_s = float(terms["poll_s"])
        self._tell_refusals([str(reason) for reason in terms["refusals"]])
        if self._context is None:
            self._context = _context(settings, self._api, self._facts)
        self._context.settings = settings
        self._registered, self._said = True, None
        log.info("registered", server=self._api.url, worker=self._facts.name)

    def _tell_refusals(self, reasons: list[str]) -> None:
        for reason in reasons:
            if reason not in self._refusals:
                log.warning("this worker does not fit a split", reason=reason)
        self._refusals = reasons

    def _leave(self) -> None:
        if self._context is not None:
            self._context.close()
        try:
            if self._registered:
                self._api.set_state("stopped")
        except AppError as error:
            log.warning("the server could not be notified of the stop", reason=error.detail)
        self._api.close()


def _context(settings: Settings, api: WorkerApi, facts: WorkerFacts) -> RunningContext:
    cache = SplitCache(settings.scratch / "splits", cap_bytes=settings.cache_mib * 2**20)
    return RunningContext(
        settings=settings,
        facts=facts,
        leases=HttpLeases(api),
        artefacts=ServedArtefacts(api, cache),
        cache=cache,
    )


def serve_process(settings: Settings, url: str, token: str, *, name: str) -> int:
    """Serve as one process of this host, under a name that no other process has."""
    facts = worker_facts(settings)
    with_name = WorkerFacts(name, facts.device, facts.memory_mib, facts.versions)
    return RemoteWorker(settings, WorkerApi(url, token=token, name=name), with_name).serve()


def _wait(seconds: float) -> None:
    """Wait about so long, and no longer once a stop is asked for."""
    deadline = time.monotonic() + seconds * random.uniform(0.75, 1.0)  # noqa: S311 (spreads many workers' calls)
    while time.monotonic() < deadline and not graceful_shutdown.is_asked():
        time.sleep(LOOK_EVERY_S)
