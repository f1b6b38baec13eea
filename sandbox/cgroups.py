"""A control group for each run, versions 1 and 2: what holds all of a run's processes together.

Groups are made below the launcher's own (or one that an organiser delegated), never beside it, so a
run can never have more than the launcher itself was given. Where no group may be made, the process
limits of the kernel and a watch over the run's memory take their place, and the controls say so.
"""

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.policy import RunPolicy

_MIB = 1024 * 1024
_PREFIX = "lethe-sandbox-"
_V1_CONTROLLERS = ("memory", "pids", "cpuacct")
_REMOVE_ATTEMPTS = 50
RECORDS = Path("/run/lethe-sandbox-groups")


@dataclass(frozen=True)
class GroupUsage:
    """What a run's group counted."""

    cpu_time_s: float = 0.0
    peak_memory_mib: float = 0.0
    oom_kills: int = 0
    refused_forks: int = 0


@dataclass(frozen=True)
class GroupRoots:
    """Where groups may be made: version 2 has one folder for all controllers, version 1 one for each."""

    version: int = 0  # 0: nowhere
    folders: Mapping[str, Path] = field(default_factory=dict)

    @property
    def controllers(self) -> frozenset[str]:
        return frozenset(self.folders)


def find_roots(delegated: Path | None = None) -> GroupRoots:
    """Return where this process may make groups, trying each place once with a group that it removes again.

    delegated: a version 2 group that somebody gave to this user; tried first.
    """
    own = _own_groups()
    v2_mount, v1_mounts = _mount_points()
    if v2_mount is not None:
        path = v2_mount / own.get("", "/").lstrip("/")
        candidates = [delegated] if delegated else [path, path.parent]
        for candidate in candidates:
            if v2_mount in (candidate, *candidate.parents) and _usable_v2(candidate):
                return GroupRoots(version=2, folders=dict.fromkeys(("memory", "pids", "cpu"), candidate))
    folders = {}
    for controller in _V1_CONTROLLERS:
        if controller in v1_mounts and controller in own:
            folder = v1_mounts[controller] / own[controller].lstrip("/")
            if _usable(folder):
                folders[controller] = folder
    return GroupRoots(version=1 if folders else 0, folders=folders)


def _own_groups() -> dict[str, str]:
    groups = {}
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _number, names, path = line.split(":", 2)
        for name in names.split(","):
            groups[name] = path
    return groups


def _mount_points() -> tuple[Path | None, dict[str, Path]]:
    v2, v1 = None, {}
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        before, _, after = line.partition(" - ")
        kind, _source, options = after.split(" ", 2)
        target = Path(before.split(" ")[4])
        if kind == "cgroup2":
            v2 = target
        elif kind == "cgroup":
            v1.update(dict.fromkeys(options.split(","), target))
    return v2, v1


def _usable(folder: Path) -> bool:
    trial = folder / f"{_PREFIX}{owner_mark()}-trial"
    try:
        trial.mkdir()
    except OSError:
        return False
    trial.rmdir()
    return True


def _usable_v2(folder: Path) -> bool:
    try:
        available = set((folder / "cgroup.controllers").read_text(encoding="ascii").split())
        if not {"memory", "pids"} <= available:
            return False
        enabled = set((folder / "cgroup.subtree_control").read_text(encoding="ascii").split())
        if not {"memory", "pids"} <= enabled:
            (folder / "cgroup.subtree_control").write_text("+memory +pids", encoding="ascii")
    except OSError:
        return False
    return _usable(folder)


def owner_mark() -> str:
    """This process's id and start time: together they name it for as long as the machine runs."""
    return f"{os.getpid()}-{_start_time(os.getpid())}"


def _start_time(pid: int) -> str:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return stat.rpartition(")")[2].split()[19]


def remove_leftovers(roots: GroupRoots) -> list[str]:
    """Empty and remove the groups of launchers that are gone; return their names."""
    removed = set()
    for folder in set(roots.folders.values()):
        for group in folder.glob(f"{_PREFIX}*"):
            if is_left_over(group.name.removeprefix(_PREFIX)):
                kill_all(group)
                _remove(group)
                removed.add(group.name)
    return sorted(removed)


def is_left_over(marked: str) -> bool:
    """Return whether a name that begins with an owner's mark is of a process that is gone."""
    owner, _, started = marked.partition("-")
    return owner.isdigit() and not _lives(int(owner), started.partition("-")[0])


def _lives(pid: int, started: str) -> bool:
    try:
        return _start_time(pid) == started
    except (OSError, IndexError):
        return False


def kill_all(group: Path) -> None:
    """Kill every process of a group; those that fork meanwhile are met in the next round."""
    with contextlib.suppress(OSError):
        (group / "cgroup.kill").write_text("1", encoding="ascii")
    for _ in range(_REMOVE_ATTEMPTS):
        try:
            pids = [int(pid) for pid in (group / "cgroup.procs").read_text(encoding="ascii").split()]
        except OSError:
            return
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, 9)
        time.sleep(0.01)


def _remove(group: Path) -> None:
    for _ in range(_REMOVE_ATTEMPTS):
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.01)
        else:
            return


class RunGroup:
    """The group of one run. Made before the participant's code starts, removed when all of it is gone."""

    def __init__(self, roots: GroupRoots, policy: RunPolicy, *, name: str) -> None:
        self._roots = roots
        full_name = f"{_PREFIX}{owner_mark()}-{name}"
        self._groups = {controller: folder / full_name for controller, folder in roots.folders.items()}
        self._pids_before = 0
        for group in set(self._groups.values()):
            group.mkdir()
        self._limit(policy)

    @property
    def counts_cpu_time(self) -> bool:
        return bool({"cpu", "cpuacct"} & set(self._groups))

    def add(self, pid: int) -> None:
        """Put a process in; what it forks from now on belongs to the group as well."""
        for group in set(self._groups.values()):
            (group / "cgroup.procs").write_text(str(pid), encoding="ascii")

    def usage(self) -> GroupUsage:
        """Return what has been counted so far."""
        return GroupUsage(
            cpu_time_s=self.cpu_time_s(),
            peak_memory_mib=self._peak_bytes() / _MIB,
            oom_kills=self.oom_kills(),
            refused_forks=self._event("pids", "pids.events", "max"),
        )

    def cpu_time_s(self) -> float:
        """Processor seconds of all processes, living and gone."""
        if self._is_v2:
            return self._event("cpu", "cpu.stat", "usage_usec") / 1e6
        return self._number("cpuacct", "cpuacct.usage") / 1e9

    def oom_kills(self) -> int:
        """How many of its processes the kernel killed for lack of memory."""
        return self._event("memory", "memory.events" if self._is_v2 else "memory.oom_control", "oom_kill")

    def close(self) -> None:
        """Kill what is left and remove the group."""
        for group in set(self._groups.values()):
            kill_all(group)
            _remove(group)

    @property
    def _is_v2(self) -> bool:
        return self._roots.version == 2

    def _limit(self, policy: RunPolicy) -> None:
        memory = str(policy.memory_mib * _MIB)
        if self._is_v2:
            self._write("memory", "memory.max", memory)
            self._write("memory", "memory.swap.max", "0")
            self._write("memory", "memory.oom.group", "1")
        else:
            self._write("memory", "memory.limit_in_bytes", memory)
            self._write("memory", "memory.memsw.limit_in_bytes", memory)
        self._write("pids", "pids.max", str(policy.processes))

    def _write(self, controller: str, name: str, value: str) -> None:
        if controller in self._groups and (path := self._groups[controller] / name).exists():
            path.write_text(value, encoding="ascii")

    def _peak_bytes(self) -> int:
        return self._number("memory", "memory.peak" if self._is_v2 else "memory.max_usage_in_bytes")

    def _number(self, controller: str, name: str) -> int:
        return int(self._read(controller, name).strip() or 0)

    def _event(self, controller: str, name: str, key: str) -> int:
        for line in self._read(controller, name).splitlines():
            word, _, value = line.partition(" ")
            if word == key:
                return int(value)
        return 0

    def _read(self, controller: str, name: str) -> str:
        if controller not in self._groups:
            return ""
        try:
            return (self._groups[controller] / name).read_text(encoding="ascii")
        except OSError:
            return ""


def keep_record(roots: GroupRoots, *, records: Path = RECORDS) -> None:
    """Write down where this process makes groups."""
    if roots.version and _is_roots_own(records):
        lines = sorted({str(folder) for folder in roots.folders.values()})
        record = records / owner_mark()
        part = records / f".{record.name}"
        part.write_text("\n".join(lines), encoding="utf-8")
        part.replace(record)


def remove_recorded_leftovers(*, records: Path = RECORDS) -> list[str]:
    """Empty and remove the groups of recorded launchers that are gone, and their records. Return the groups' names."""
    removed: list[str] = []
    for record in sorted(records.glob("[0-9]*-*")) if _is_roots_own(records) else ():
        if not is_left_over(record.name):
            continue
        try:
            folders = [Path(line) for line in record.read_text(encoding="utf-8").splitlines()]
        except FileNotFoundError:
            continue  # another launcher that starts now has been here
        groups = {str(folder): folder for folder in folders if (folder / "cgroup.procs").is_file()}
        removed += remove_leftovers(GroupRoots(folders=groups))
        record.unlink(missing_ok=True)
    return removed


def _is_roots_own(records: Path) -> bool:
    """Make the folder, if there is none. What another user could write there would name groups to root."""
    if os.geteuid() != 0 or not records.parent.is_dir():
        return False
    records.mkdir(mode=0o700, exist_ok=True)
    seen = records.lstat()
    return not records.is_symlink() and seen.st_uid == 0 and not seen.st_mode & 0o022
