"""What a run's processes use, read from the host's /proc: the measure where no control group counts."""

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class TreeUsage:
    """Processor seconds and memory of a process and its descendants that are still there."""

    cpu_time_s: float = 0.0
    memory_kib: int = 0
    is_runnable: bool = False  # one of them wants a processor now, whether it gets one or not


def tree_usage(pid: int, *, shared_kib: int = 0) -> TreeUsage:
    """Measure `pid` and all below it.

    shared_kib: anonymous memory that each process has in common with the zygote it was forked from.
    A process that leaves while it is looked at counts as nothing.
    """
    cpu_time_s, memory_kib, is_runnable = 0.0, 0, False
    seen: set[int] = set()
    waiting = [pid]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        state, used_s = _state_and_cpu_time_s(current)
        cpu_time_s += used_s
        is_runnable = is_runnable or state in {"R", "D"}
        memory_kib += max(0, _memory_kib(current) - shared_kib)
        waiting += children(current)
    return TreeUsage(cpu_time_s=cpu_time_s, memory_kib=memory_kib, is_runnable=is_runnable)


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
    try:
        threads = [entry.name for entry in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []
    return [int(child) for thread in threads for child in _read(f"/proc/{pid}/task/{thread}/children").split()]


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
