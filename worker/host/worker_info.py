"""What this worker reports about itself: device, memory for one run, versions of what computes."""

import os
import platform
import socket
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from billiard.process import current_process

from sandbox.controls import REQUIRED, Control, missing_controls
from sandbox.environments import find_environment, known_sets, missing_set
from sandbox.host_controls import host_controls
from server.config import Settings
from server.models.worker import WorkerFacts, libraries_fact
from worker.host.gpu_sandbox import CUDA_HOST_MIB

COMPUTES = ("torch", "torchvision", "numpy")


def required_controls(settings: Settings) -> frozenset[Control]:
    """Return what a sandbox of this worker must have to start."""
    return REQUIRED[settings.sandbox_required]


def missing_here(settings: Settings) -> tuple[str, ...]:
    """Return a sentence for each required protection that this host lacks, with how to get it. Looked up once."""
    return _missing_here(settings.sandbox_backend, settings.sandbox_required)


@lru_cache
def _missing_here(backend: str, required: str) -> tuple[str, ...]:
    if backend == "plain":
        return ()  # for tests: has nothing, and is asked for nothing
    return tuple(missing_controls(host_controls(backend), REQUIRED[required]))


def worker_facts(settings: Settings) -> WorkerFacts:
    """Return the facts of this process."""
    return WorkerFacts(
        name=f"{socket.gethostname()}-{os.getpid()}",
        device=settings.worker_device,
        memory_mib=run_memory_mib(settings),
        versions={
            "python": platform.python_version(),
            **{name: version(name) for name in COMPUTES},
            **{libraries_fact(name): in_words for name, in_words in installed_sets(settings).items()},
        },
        isolates_runs=Control.RUN_ISOLATION in required_controls(settings),
    )


def installed_sets(settings: Settings) -> dict[str, str]:
    """Return which versions each set of older libraries has that sandboxes can use here, by the set's name."""
    folder = settings.library_sets
    usable = (name for name in known_sets() if not missing_set(name, folder))
    return {name: find_environment(name, folder).in_words for name in usable}


def run_memory_mib(settings: Settings) -> int:
    """Return the most that a competition may allow a run here: a run on a GPU is given more, for CUDA's own part."""
    share = memory_share_mib(settings)
    return max(0, share - CUDA_HOST_MIB) if settings.worker_device == "cuda" else share


def memory_share_mib(settings: Settings) -> int:
    """Return the memory that one process of this worker may use."""
    return (settings.worker_memory_mib or host_memory_mib()) // settings.worker_concurrency


def host_memory_mib() -> int:
    """Return the memory that this host has, or that the container it is in may use, whichever is less."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    limits = [pages * size]
    for path in (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")):
        try:
            limits.append(int(path.read_text()))
        except (OSError, ValueError):  # no such hierarchy, or "max"
            continue
    return min(limits) // 2**20


def find_gpu(settings: Settings, *, slot: int) -> str:
    """Return the number of the GPU that the process in pool slot `slot` works on."""
    gpus = settings.worker_gpus.split(",")
    return gpus[slot % len(gpus)]


def pool_slot() -> int:
    """Return the place of this process in its worker's pool, 0 for the first."""
    index: Any = getattr(current_process(), "index", 0)
    return int(index or 0)
