"""What one run may have, as data: validated, serialisable, recorded with every result."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any

DRIVER_FOLDER = "/opt/driver"  # where a mount shows the libraries of a device's driver; the loader looks there


class Isolation(StrEnum):
    """How far one run is kept from the next."""

    RUN = "run"  # a fresh process, namespaces, pipe, scratch and seed for every run
    SHARD = "shard"  # one process serves a shard's runs one after the other; for accelerators, weaker


class InvalidPolicy(ValueError):
    """A limit that cannot be kept, with the value and what is allowed."""


@dataclass(frozen=True)
class Mount:
    """A host file or folder shown read-only inside, for what an organiser adds (a driver, a library)."""

    source: str
    target: str


_AT_LEAST: Mapping[str, float] = {
    "memory_mib": 64,
    "processes": 1,
    "scratch_mib": 1,
    "scratch_inodes": 16,
    "shared_memory_mib": 1,
    "file_size_mib": 1,
    "log_kib": 1,
    "frame_mib": 1,
    "open_files": 32,
    "threads": 1,
}


@dataclass(frozen=True)
class RunPolicy:
    """The limits of one run. Every limit is measured or enforced from outside the run.

    wall_time_s: from the time the participant's code may start to the last byte of its weights.
    idle_time_s: longest stretch in which the run uses no processor; None switches the check off.
    cpu_time_s: processor seconds of all its processes together; None allows wall_time_s on each thread.
    memory_mib: all its processes and its in-memory files together, beyond what the zygote already holds.
    processes: processes and threads at any time.
    scratch_mib, scratch_inodes: its own /scratch (also /tmp), gone with the run.
    log_kib: what it may print; one byte more ends the run.
    frame_mib: refuse to start for an original model larger than this.
    max_abs_weight: larger weights are refused, so that inference stays finite.
    cpus: processors it may run on; empty leaves the host's choice.
    libraries: the set of older libraries that it runs with (sandbox/environments.py); "" for the worker's own.
    devices, mounts: what an organiser adds to the view; both empty by default. With a device, a run also sees copies
        of the few files of /proc that drivers read, and may make the calls that they need.
    """

    wall_time_s: float = 60.0
    idle_time_s: float | None = 20.0
    cpu_time_s: float | None = None
    memory_mib: int = 2048
    processes: int = 64
    scratch_mib: int = 256
    scratch_inodes: int = 4096
    shared_memory_mib: int = 64
    file_size_mib: int = 256
    log_kib: int = 256
    frame_mib: int = 1024
    max_abs_weight: float = 1e9
    open_files: int = 256
    threads: int = 1
    cpus: tuple[int, ...] = ()
    libraries: str = ""
    device: str = "cpu"
    devices: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    isolation: Isolation = Isolation.RUN

    def __post_init__(self) -> None:
        for name, least in _AT_LEAST.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InvalidPolicy(f"{name} must be a whole number of at least {least:g}, not {value!r}")
        for name in ("wall_time_s", "max_abs_weight"):
            _require_positive(name, getattr(self, name))
        for name in ("idle_time_s", "cpu_time_s"):
            if getattr(self, name) is not None:
                _require_positive(name, getattr(self, name))
        if any(cpu < 0 for cpu in self.cpus):
            raise InvalidPolicy(f"cpus must be processor numbers, not {self.cpus!r}")
        for mount in self.mounts:
            _require_neutral_target(mount)

    @property
    def cpu_allowance_s(self) -> float:
        """Processor seconds allowed to the complete run."""
        return self.cpu_time_s if self.cpu_time_s is not None else self.wall_time_s * max(2, self.threads)

    @property
    def process_cpu_s(self) -> float:
        """Processor seconds after which the kernel ends a process: for what the host's own measure misses."""
        return max(self.cpu_allowance_s, self.wall_time_s * max(2, self.threads))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        values = asdict(self)
        values["isolation"] = self.isolation.value
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _require_positive(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise InvalidPolicy(f"{name} must be a positive number, not {value!r}")


def _require_neutral_target(mount: Mount) -> None:
    target = PurePosixPath(mount.target)
    if not target.is_absolute() or ".." in target.parts or len(target.parts) < 2:
        raise InvalidPolicy(f"a mount needs an absolute target without '..', not {mount.target!r}")
    if target.parts[1] in {"proc", "data", "stage", "submission", "scratch", "tmp"}:
        raise InvalidPolicy(f"a mount may not cover /{target.parts[1]}: {mount.target!r}")
