"""After a host fault, a process waits before it takes more work: another host may be healthy.

A full disk or a broken driver would otherwise use up every attempt at every shard within seconds. After many faults in
a row a process is quarantined: it takes a shard again only after a run of its own went well.
"""

import time
from dataclasses import dataclass

FIRST_S = 2.0
MAX_DELAY_S = 300.0
QUARANTINE_AFTER = 4  # faults in a row


@dataclass
class Cooling:
    """How long this process leaves the work to others, and why."""

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
        """Note a fault of the host. Return for how many seconds nothing is taken."""
        wait: float = min(FIRST_S * 2**self._faults, MAX_DELAY_S)
        self.reason, self._went_well = reason, False
        self._faults += 1
        self._until = time.monotonic() + wait
        return wait

    def canary_went_well(self) -> None:
        """Let one shard be tried; the next fault is the next in the row."""
        self._went_well = True

    def success(self) -> None:
        self.reason, self._faults, self._until, self._went_well = "", 0, 0.0, False
