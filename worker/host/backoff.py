"""After a host fault, a process waits before it takes more work: another host may be healthy.

A full disk or a broken driver would otherwise use up every attempt at every shard within seconds.
"""

import time
from dataclasses import dataclass

FIRST_S = 2.0
LONGEST_S = 300.0


@dataclass
class Cooling:
    """How long this process leaves the work to others."""

    _faults: int = 0
    _until: float = 0.0

    @property
    def is_on(self) -> bool:
        return time.monotonic() < self._until

    def fault(self) -> float:
        """Note a fault of the host. Return for how many seconds nothing is taken."""
        wait: float = min(FIRST_S * 2**self._faults, LONGEST_S)
        self._faults += 1
        self._until = time.monotonic() + wait
        return wait

    def success(self) -> None:
        self._faults, self._until = 0, 0.0
