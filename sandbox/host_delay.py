"""How much of a run's time its machine took from it, by what the kernel counts, and never by what the run says.

The host's are: waiting for a processor (`schedstat`: a thread was runnable, and did not run), time that a hypervisor
gave to others (steal), waiting for a stalled disk while the machine's I/O pressure says so, and stretches in which the
watch itself did not run, because the machine stood still or this process did. Sleeping is the run's own, and so is
waiting for its own threads and processes: they compute meanwhile, and what is computed is never given back.
"""

import os
from pathlib import Path

from sandbox.proc_usage import tree_usage

LATE_S = 0.1  # a look that comes this much later than it was meant to: the watch itself was kept waiting
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_NS = 1e-9


class HostDelay:
    """Adds up what the machine took from the processes below `pid`; one look after the other, some tenths of a second
    apart."""

    def __init__(self, pid: int, *, threads: int, began: float) -> None:
        """threads: on how many processors its computing is meant to run. began: at which time by the clock."""
        self._pid, self._threads = pid, threads
        self._began = self._looked_at = began
        self._waited_s = self._absent_s = self._cpu_time_s = 0.0
        self._usage = tree_usage(pid)
        self._own_s, self._steal_s, self._io_s = _own_delay_s(), _steal_s(), _io_stalled_s()
        self._is_kept_waiting = False

    @property
    def is_kept_waiting(self) -> bool:
        """Whether a thread has waited for a processor or the disk since the last look but one, which the kernel counts
        only when it has ended."""
        return self._is_kept_waiting

    @property
    def is_stopped(self) -> bool:
        """Whether the run's first process was stopped by a signal."""
        return self._usage.is_stopped

    @property
    def lost_s(self) -> float:
        """What the machine took so far, seconds: never more than was left of the time beside the run's computing."""
        free_s = self._looked_at - self._began - self._cpu_time_s / self._threads
        return max(0.0, min(self._waited_s + self._absent_s, free_s))

    @property
    def waited_s(self) -> float:
        """The part of it in which the watch ran and the run did not."""
        return max(0.0, self.lost_s - self._absent_s)

    def look(self, now: float, *, cpu_time_s: float, every_s: float) -> None:
        """Take account of the time since the last look. cpu_time_s: of the run since it began; every_s: how often a
        look is meant."""
        since_s, before = now - self._looked_at, self._usage
        computed_s = cpu_time_s - self._cpu_time_s
        self._usage = after = tree_usage(self._pid)
        own_s, steal_s, io_s = _own_delay_s(), _steal_s(), _io_stalled_s()
        late_s = since_s - every_s if since_s > every_s + LATE_S else 0.0
        self._absent_s += late_s
        if after.delays_ns:
            waits_ns = [delay - before.delays_ns.get(thread, 0) for thread, delay in after.delays_ns.items()]
            delayed_s = max(waits_ns, default=0) * _NS
        else:  # this kernel counts none: that it is runnable now stands for the time since the last look
            delayed_s = max(0.0, since_s - computed_s) if after.is_runnable else 0.0
        stalled_s = min(since_s, io_s - self._io_s) if before.is_blocked and after.is_blocked else 0.0
        waited_s = max(delayed_s, stalled_s, own_s - self._own_s) + steal_s - self._steal_s
        self._waited_s += max(0.0, waited_s - late_s)
        self._is_kept_waiting = (after.is_runnable and computed_s < 0.1 * since_s) or stalled_s > 0
        self._looked_at, self._cpu_time_s = now, cpu_time_s
        self._own_s, self._steal_s, self._io_s = own_s, steal_s, io_s


def _own_delay_s() -> float:
    """How long this thread, which takes what the run sends, has waited for a processor."""
    return int((_read("/proc/thread-self/schedstat").split() or ["0", "0"])[1]) * _NS


def _steal_s() -> float:
    """What a hypervisor gave to others, as a mean of the processors."""
    fields = _read("/proc/stat").partition("\n")[0].split()
    return int(fields[8]) / _TICKS_PER_S / (os.cpu_count() or 1) if len(fields) > 8 else 0.0


def _io_stalled_s() -> float:
    """How long something on the machine has waited for a disk."""
    total = _read("/proc/pressure/io").partition("\n")[0].rpartition("total=")[2]
    return int(total) * 1e-6 if total else 0.0


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError:
        return ""
