"""What a run's processes use, and how much of their time the machine took from them, read from the host's /proc.

What they use is read here where no control group counts it.
What was taken goes by what the kernel counts, and never by what the run says. The host's are: waiting for a processor
(`schedstat`: a thread was runnable, and did not run), time that a hypervisor gave to others (steal), waiting for a
stalled disk while the machine's I/O pressure says so, and stretches in which the watch itself did not run, because the
machine stood still or this process did. Sleeping is the run's own, and so is waiting for its own threads and
processes: they compute meanwhile, and what is computed is never given back.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

LATE_S = 0.1  # a look that comes this much later than it was meant to: the watch itself was kept waiting
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_NS = 1e-9


@dataclass(frozen=True)
class TreeUsage:
    """Processor seconds and memory of a process and its descendants that are still there.

    is_runnable: one of them wants a processor now, whether it gets one or not. is_blocked: one waits for a disk, or
    for a process that it made with vfork. is_stopped: the first was stopped. delays_ns: how long each thread has waited
    for a processor; empty where the kernel does not count it.
    """

    cpu_time_s: float = 0.0
    memory_kib: int = 0
    is_runnable: bool = False
    is_blocked: bool = False
    is_stopped: bool = False
    delays_ns: Mapping[int, int] = field(default_factory=dict)


def tree_usage(pid: int, *, shared_kib: int = 0) -> TreeUsage:
    """Measure `pid` and all below it.

    shared_kib: anonymous memory that each process has in common with the zygote it was forked from.
    A process that leaves while it is looked at counts as nothing.
    """
    cpu_time_s, memory_kib = 0.0, 0
    states: dict[int, str] = {}
    delays_ns: dict[int, int] = {}
    seen: set[int] = set()
    waiting = [pid]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        states[current], used_s = _state_and_cpu_time_s(current)
        cpu_time_s += used_s
        memory_kib += max(0, _memory_kib(current) - shared_kib)
        for thread in _threads(current):
            counted = _read(f"/proc/{current}/task/{thread}/schedstat").split()
            if len(counted) > 1:
                delays_ns[thread] = int(counted[1])
            waiting += _children(current, thread)
    return TreeUsage(
        cpu_time_s=cpu_time_s,
        memory_kib=memory_kib,
        is_runnable="R" in states.values(),
        is_blocked="D" in states.values(),
        is_stopped=states[pid] == "T",
        delays_ns=delays_ns,
    )


def _state_and_cpu_time_s(pid: int) -> tuple[str, float]:
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    ticks = sum(int(ticks) for ticks in fields[11:15])  # its own, and its waited-for children's
    return (fields[0] if fields else "", ticks / _TICKS_PER_S)


def _memory_kib(pid: int) -> int:
    total = 0
    for line in _read(f"/proc/{pid}/status").splitlines():
        if line.startswith(("RssAnon:", "RssShmem:")):
            total += int(line.split()[1])
    return total


def children(pid: int) -> list[int]:
    """Return the ids of a process's children, as the host knows them."""
    return [child for thread in _threads(pid) for child in _children(pid, thread)]


def _children(pid: int, thread: int) -> list[int]:
    return [int(child) for child in _read(f"/proc/{pid}/task/{thread}/children").split()]


def _threads(pid: int) -> list[int]:
    try:
        return [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


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
