"""A run of the worker's own, on made-up data: what a quarantined process must pass before it takes a shard again."""

import os
import tempfile

import structlog

from sandbox import doctor
from server.config import Settings
from server.models.worker import WorkerState
from worker.host.backoff import Cooling
from worker.host.sandbox_requirements import required_controls

log = structlog.get_logger()
WRITTEN_MIB = 64


def out_of_service(cooling: Cooling, settings: Settings) -> WorkerState | None:
    """Return the state in which this process takes no shard. A quarantined one first makes a run of its own."""
    if cooling.is_quarantined and not cooling.is_on:
        if found := problem(settings):
            log.error("canary failed", reason=found, pause_s=cooling.fault(found))
        else:
            log.info("canary went well")
            cooling.canary_went_well()
    if not cooling.is_on:
        return None
    return WorkerState.QUARANTINED if cooling.is_quarantined else WorkerState.COOLING


def problem(settings: Settings) -> str:
    """Run the canary. Return what is wrong with this host; empty if the run went well."""
    try:
        settings.scratch.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=settings.scratch) as file:
            for _ in range(WRITTEN_MIB):
                file.write(os.urandom(1 << 20))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return f"{WRITTEN_MIB} MiB cannot be written to {settings.scratch}: {error}"
    found = doctor.examine(backend=settings.sandbox_backend, required=required_controls(settings))
    return " ".join(found.problems)
