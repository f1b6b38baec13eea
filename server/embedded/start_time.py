"""How long a process that starts is waited for: a busy machine may take minutes; one that stands still is given up."""

import os
import time
from pathlib import Path

SILENT_FOR_S = 60.0  # without computing: one that starts is waited for while it does
STARTS_WITHIN_S = 300.0  # of the processor: a web server takes some ten on a slow one
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class StartTime:
    """The time of one process's start. silent_for_s: how long it may do nothing. least_s: what of the processor within
    that time is something."""

    def __init__(self, pid: int, *, silent_for_s: float, least_s: float) -> None:
        self._pid, self._silent_for_s, self._least_s = pid, silent_for_s, least_s
        self._since = time.monotonic()
        self.used_s = 0.0

    def goes_on(self) -> bool:
        """Return whether to wait on."""
        if (now_s := processor_s(self._pid)) > self.used_s + self._least_s and now_s < STARTS_WITHIN_S:
            self.used_s, self._since = now_s, time.monotonic()
        return time.monotonic() < self._since + self._silent_for_s


def processor_s(pid: int) -> float:
    """Return what a process has used of the processor; 0 once it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS
