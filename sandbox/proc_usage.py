"""What a run's processes use, read from the host's /proc: the measure where no control group counts."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


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
