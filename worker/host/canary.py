"""A run of the worker's own, on made-up data: what a quarantined process must pass before it takes a shard again."""

import os
import tempfile

from sandbox import doctor
from server.config import Settings
from worker.host.sandbox_requirements import required_controls

WRITTEN_MIB = 64


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
