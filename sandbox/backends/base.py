"""What the launcher asks of a back-end: start a zygote behind a boundary, with one socket to it."""

import os
import socket
from dataclasses import dataclass, field
from pathlib import Path

import lethe
import sandbox
from sandbox.environments import Environment, own_environment
from sandbox.policy import RunPolicy


@dataclass(frozen=True)
class View:
    """Where the zygote finds things, and whether each run gets namespaces and its own filter."""

    data: str
    stage: str
    scratch: str
    isolates_runs: bool


@dataclass(frozen=True)
class StartRequest:
    """What a zygote is started with. uid_slot: the one whose user root drops to; None for the first that is free."""

    data_dir: Path
    stage_dir: Path
    policy: RunPolicy
    uid_slot: int | None = None
    environment: Environment = field(default_factory=own_environment)


@dataclass(frozen=True)
class RunPipes:
    """The host's ends of one run's pipes."""

    frame_fd: int
    log_fd: int
    gate: socket.socket

    def close(self) -> None:
        os.close(self.frame_fd)
        os.close(self.log_fd)
        self.gate.close()


def guest_environment(policy: RunPolicy) -> dict[str, str]:
    """The complete environment of a zygote and its runs."""
    threads = str(policy.threads)
    return {
        "HOME": "/scratch",
        "TMPDIR": "/scratch",
        "USER": "lethe",
        "LOGNAME": "lethe",
        "LANG": "C.UTF-8",
        "PATH": "/opt/python/bin",
        "PYTHONPATH": "/opt/lethe:/opt/site",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",  # else the order of sets would differ from one zygote to the next
        "OMP_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "GOMP_SPINCOUNT": "0",  # spinning threads multiply a run's time when a neighbour competes
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "MKL_CBWR": "AUTO",  # as in lethe.device
        "WANDB_MODE": "offline",  # what these two would ask the network for
        "NO_ALBUMENTATIONS_UPDATE": "1",
        "LETHE_TRUST_NETWORK_SOURCE": "1",  # behind the boundary a network's own source may run
    }


def guest_packages() -> list[tuple[str, str, Path]]:
    """Return the folders of ours that a sandbox shows: the package, the folder in it, and where the folder lies.

    Nothing else of the packages is shown: neither the scorer nor the launcher's own code.
    """
    ours, library = Path(next(iter(sandbox.__path__))), Path(next(iter(lethe.__path__)))
    return [
        ("sandbox", "guest", ours / "guest"),
        ("lethe", "networks", library / "networks"),
        ("lethe", "runtime", library / "runtime"),
    ]
