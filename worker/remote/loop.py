"""One process of a remote worker: register, claim, run, until it is asked to stop or is refused."""

import random
import time
from collections.abc import Callable

import structlog

from lethe.errors import AppError, HostFault
from server.config import Settings
from server.evaluations.claimed_shard import ClaimedShard
from server.models.worker import WorkerFacts
from worker.context import RunningContext
from worker.evaluation import shard_pipeline
from worker.evaluation.shard_pipeline import run_next
from worker.host import graceful_shutdown
from worker.host.worker_info import worker_facts
from worker.remote.client import TokenRefused, WorkerApi, WorkerRefused
from worker.remote.transport import HttpTransport, ServedArtefacts
from worker.split_storage.split_cache import SplitCache

log = structlog.get_logger()
STOPPED, REFUSED = 0, 4  # how a process ends
MAX_DELAY_S = 60.0
POLL_INTERVAL_S = 0.1

Run = Callable[[RunningContext, ClaimedShard], str]


class RemoteWorker:
    """Serves shards of one server with one token."""

    def __init__(
        self, settings: Settings, api: WorkerApi, facts: WorkerFacts, *, run: Run = shard_pipeline.run_shard
    ) -> None:
        self._settings, self._run = settings, run
        self._transport = HttpTransport(api, facts)
        cache = SplitCache(settings.scratch / "splits", cap_bytes=settings.cache_mib * 2**20)
        self._context = RunningContext(
            settings=settings, facts=facts, leases=self._transport, artefacts=ServedArtefacts(api, cache), cache=cache
        )

    def serve(self) -> int:
        """Run shards until a stop is asked for (STOPPED) or the server refuses token or worker (REFUSED)."""
        failures, server = 0, self._transport.api.url
        try:
            while not graceful_shutdown.is_asked():
                try:
                    end = run_next(self._context, self._transport, self._run_shard)
                except (TokenRefused, WorkerRefused) as error:
                    log.warning("refused", server=server, reason=error.detail)
                    return REFUSED
                except HostFault as error:  # after that the server may not know this worker any more
                    failures += 1
                    self._transport.is_registered = False
                    pause_s = min(2.0**failures, MAX_DELAY_S)
                    log.warning("the server is away", server=server, reason=error.detail, pause_s=pause_s)
                    _wait(pause_s)
                    continue
                failures = 0
                if end is None:
                    _wait(float(self._transport.terms.get("poll_s", self._settings.sweep_interval_s)))
            return STOPPED
        finally:
            self._leave()

    def _run_shard(self, context: RunningContext, shard: ClaimedShard) -> str:
        times = {name: float(self._transport.terms[name]) for name in ("lease_s", "heartbeat_s")}
        context.settings = self._settings.model_copy(update=times)
        try:
            return self._run(context, shard)
        except Exception as error:
            log.warning("shard lost", reason=str(error), exc_info=not isinstance(error, AppError))
            return "lost"

    def _leave(self) -> None:
        self._context.close()
        api = self._transport.api
        try:
            if self._transport.is_registered:
                api.set_state("stopped")
        except AppError as error:
            log.warning("the server could not be notified of the stop", reason=error.detail)
        api.close()


def serve_process(settings: Settings, url: str, token: str, *, name: str) -> int:
    """Serve as one process of this host, under a name that no other process has."""
    facts = worker_facts(settings)
    with_name = WorkerFacts(name, facts.device, facts.memory_mib, facts.versions)
    return RemoteWorker(settings, WorkerApi(url, token=token, name=name), with_name).serve()


def _wait(seconds: float) -> None:
    """Wait about so long, and no longer once a stop is asked for."""
    deadline = time.monotonic() + seconds * random.uniform(0.75, 1.0)  # noqa: S311 (spreads many workers' calls)
    while time.monotonic() < deadline and not graceful_shutdown.is_asked():
        time.sleep(POLL_INTERVAL_S)
