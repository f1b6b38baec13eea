"""After a host fault, a process waits before it takes more work: another host may be healthy.

A full disk or a broken driver would otherwise use up every attempt at every shard within seconds. After many faults in
a row a process is quarantined: it takes a shard again only after a run of its own went well.
"""

import os
import tempfile
import time
from dataclasses import dataclass

import structlog
import torch

from sandbox import doctor
from server.config import Settings
from server.models.worker import WorkerState
from worker.host.worker_info import required_controls

SHARED = 1.5  # so many times as long as it ever took: others are at work on the device
REPEATS, SIDE = 20, 2048


class DevicePace:
    """Keeps the least time of the reference computation."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._least_s = float("inf")

    def look(self) -> float:
        """Time a fixed computation. Return its duration relative to the fastest so far: about 1 on an idle host."""
        took_s = self._reference_s()
        self._least_s = min(self._least_s, took_s)
        return took_s / self._least_s

    def _reference_s(self) -> float:
        matrix = torch.ones((SIDE, SIDE), device=self._device)
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(REPEATS):
            torch.mm(matrix, matrix)
        torch.cuda.synchronize()
        return time.perf_counter() - began


FIRST_S = 2.0
MAX_DELAY_S = 300.0
QUARANTINE_AFTER = 4  # faults in a row
log = structlog.get_logger()
WRITTEN_MIB = 64


@dataclass
class Cooling:
    """How long this process takes no work, and why."""

    reason: str = ""
    _faults: int = 0
    _until: float = 0.0
    _went_well: bool = False

    @property
    def is_on(self) -> bool:
        return time.monotonic() < self._until

    @property
    def is_quarantined(self) -> bool:
        """Whether a run of its own must go well before it takes a shard."""
        return self._faults >= QUARANTINE_AFTER and not self._went_well

    def fault(self, reason: str = "") -> float:
        """Record a fault of the host. Return the seconds for which no work is taken."""
        wait: float = min(FIRST_S * 2**self._faults, MAX_DELAY_S)
        self.reason, self._went_well = reason, False
        self._faults += 1
        self._until = time.monotonic() + wait
        return wait

    def canary_succeeded(self) -> None:
        """Let one shard be tried; the next fault is the next in the row."""
        self._went_well = True

    def success(self) -> None:
        self.reason, self._faults, self._until, self._went_well = "", 0, 0.0, False


def out_of_service(cooling: Cooling, settings: Settings) -> WorkerState | None:
    """Return the state in which this process takes no shard. A quarantined one first makes a run of its own."""
    if cooling.is_quarantined and not cooling.is_on:
        if wrong := problem(settings):
            log.error("canary failed", reason=wrong, pause_s=cooling.fault(wrong))
        else:
            log.info("canary went well")
            cooling.canary_succeeded()
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
    examined = doctor.examine(backend=settings.sandbox_backend, required=required_controls(settings))
    return " ".join(examined.problems)
