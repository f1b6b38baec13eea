"""The next shard of a process, wherever it comes from: claimed if nothing takes this host out of service, and run."""

from collections.abc import Callable

import structlog

from server import telemetry
from server.evaluations.claimed_shard import ClaimedShard
from worker.context import RunningContext
from worker.host import backoff, graceful_shutdown, prometheus
from worker.transport import Transport

log = structlog.get_logger()


def run_next(
    context: RunningContext, transport: Transport, run: Callable[[RunningContext, ClaimedShard], str]
) -> str | None:
    """Claim a shard and run it. Return how it ended; None if there was none."""
    shard = claim(context, transport)
    prometheus.CLAIMS.labels("nothing" if shard is None else "shard").inc()
    if shard is None:
        return None
    with structlog.contextvars.bound_contextvars(
        request_id=shard.request_id,
        submission=shard.submission_id,
        shard=shard.shard_id,
        attempt=shard.attempt,
        runs=f"{shard.first_run}-{shard.first_run + shard.n_runs - 1}",
    ):
        log.info("shard claimed", kind=shard.kind.value)
        with (
            prometheus.SHARD_SECONDS.time(),
            telemetry.span("shard", submission=shard.submission_id, id=shard.shard_id),
        ):
            end = run(context, shard)
        prometheus.SHARDS.labels(end).inc()
    return end


def claim(context: RunningContext, transport: Transport) -> ClaimedShard | None:
    """Return the fairest shard that this worker fits, or None."""
    if graceful_shutdown.is_asked():
        return None
    if state := backoff.out_of_service(context.cooling, context.settings):
        transport.report_out_of_service(state, context.cooling.reason)
        return None
    return transport.claim()
