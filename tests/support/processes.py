"""Processes of a test: found below a given one, so that only our own are ever ended."""

import os
from pathlib import Path


def descendants(root: int) -> list[tuple[int, str]]:
    """Return (pid, command line) of every process below `root`."""
    parents: dict[int, int] = {}
    commands: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            pid = int(folder.name)
            parents[pid] = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            commands[pid] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (OSError, ValueError, IndexError):
            continue  # it ended while we looked
    found: list[tuple[int, str]] = []
    for pid in parents:
        ancestor = pid
        while ancestor in parents and ancestor != root:
            ancestor = parents[ancestor]
        if ancestor == root and pid != root:
            found.append((pid, commands.get(pid, "")))
    return found


def cpu_s(root: int) -> float:
    """Return the processor time that `root` and all that it ever started have used, seconds.

    The time of a child that ended is its parent's, once the parent has waited for it. If one ended while all were
    being read, all are read again: none is missed, and none counted twice. Unlike the clock, this does not count what
    others do on the same cores.
    """
    while True:
        pids = _family(root)
        try:
            ticks = sum(_ticks(pid) for pid in pids)
        except (FileNotFoundError, ProcessLookupError):
            continue
        if pids <= _family(root):
            return ticks / os.sysconf("SC_CLK_TCK")


def _family(root: int) -> set[int]:
    return {root, *(pid for pid, _ in descendants(root))}


def _ticks(pid: int) -> int:
    """Return the ticks of a process itself and of the children that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(int(field) for field in fields[11:15])
