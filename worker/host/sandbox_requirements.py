"""Whether this host gives the protections that its operator requires before any code of a participant's runs here."""

from functools import lru_cache

from sandbox.controls import REQUIRED, Control, missing_controls
from sandbox.host_controls import host_controls
from server.config import Settings


def required_controls(settings: Settings) -> frozenset[Control]:
    """Return what a sandbox of this worker must have to start."""
    return REQUIRED[settings.sandbox_required]


def missing_here(settings: Settings) -> tuple[str, ...]:
    """Return a sentence for each required protection that this host does not give, with how to get it.

    Looked up once in a process: what is fixed counts from the worker's next start.
    """
    return _missing_here(settings.sandbox_backend, settings.sandbox_required)


@lru_cache
def _missing_here(backend: str, required: str) -> tuple[str, ...]:
    if backend == "plain":
        return ()  # for tests: has nothing, and is asked for nothing
    return tuple(missing_controls(host_controls(backend), REQUIRED[required]))
