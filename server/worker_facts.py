"""What a worker says of itself, and which versions of torch compute the same."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class WorkerFacts:
    """What a worker says of itself. memory_mib: of one run. isolates_runs: refuses runs that share a process."""

    name: str
    device: str
    memory_mib: int
    versions: dict[str, Any]
    isolates_runs: bool = False


def host_of(worker_name: str) -> str:
    """Return the host that a worker's process runs on: its name is host-process."""
    return worker_name.rpartition("-")[0]


def libraries_fact(name: str) -> str:
    """Return under which name a worker's versions hold those of an installed set of older libraries."""
    return f"libraries {name}"


def minor_version(version: object) -> str:
    """Return major.minor: a release that only fixes bugs computes the same."""
    return ".".join(str(version).split("+", maxsplit=1)[0].split(".")[:2])
