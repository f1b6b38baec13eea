"""What a run on a GPU is shown of the machine: the driver's device files, that of one GPU, what the driver reads.

Which files those are is known from the driver's published parts and from what others found who confine CUDA
(docs/organisers/splits.md); the copies that a run gets of /proc are made by sandbox/guest/driver_view.py.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from lethe.competition.sections import Limits
from lethe.errors import HostFault
from sandbox.policy import DRIVER_FOLDER, Isolation, Mount, RunPolicy

DRIVER_FILES = ("nvidiactl", "nvidia-uvm")
CUDA_HOST_MIB = 1024  # what a CUDA context takes of the host's memory: none of the participant's doing
LIBRARY = "libcuda.so.1"
_GPU = re.compile(r"nvidia(\d+)")
# Which processors and memory belong together, how large a block is, whether the modules are loaded: set at boot.
_SYSTEM_FILES = (
    "devices/system/cpu/online",
    "devices/system/cpu/possible",
    "devices/system/memory/block_size_bytes",
    "devices/system/node/has_cpu",
    "devices/system/node/has_memory",
    "devices/system/node/online",
    "devices/system/node/possible",
    "devices/system/node/node*/cpulist",
    "devices/system/node/node*/cpumap",
    "devices/system/node/node*/distance",
    "module/nvidia/initstate",
    "module/nvidia_uvm/initstate",
)
# Where the dynamic loader of a run looks by itself: its /etc is empty, so ld.so.conf and alternatives do not count.
_LOADERS_OWN = tuple(
    Path(root, name)
    for root in ("/lib", "/usr/lib", "/lib64", "/usr/lib64")
    for name in ("", "x86_64-linux-gnu", "aarch64-linux-gnu")
)
_DRIVERS_OWN = (
    Path("/usr/local/nvidia/lib64"),
    Path("/usr/local/nvidia/lib"),
    Path("/usr/lib/wsl/lib"),
    Path("/run/opengl-driver/lib"),
)


def on_gpu(policy: RunPolicy, limits: Limits, *, number: int, folder: Path = Path("/dev")) -> RunPolicy:
    """Return the policy of a run on GPU `number`, with memory for a CUDA context. Raises HostFault."""
    return replace(
        policy,
        device="cuda",
        devices=device_files(number, folder=folder),
        mounts=(*policy.mounts, *system_files(), *driver_library()),
        memory_mib=policy.memory_mib + CUDA_HOST_MIB,
        isolation=Isolation.SHARD if limits.isolation == "shard" else Isolation.RUN,
    )


def device_files(number: int, *, folder: Path = Path("/dev")) -> tuple[str, ...]:
    """Return the files through which one GPU is reached. In a container the GPUs there may begin at any number."""
    numbers = sorted(int(match[1]) for path in folder.iterdir() if (match := _GPU.fullmatch(path.name)))
    if number >= len(numbers):
        raise HostFault(f"GPU {number} has no device file: {folder} holds those of {len(numbers)} (LETHE_WORKER_GPUS)")
    names = (*DRIVER_FILES, f"nvidia{numbers[number]}")
    missing = [name for name in names if not (folder / name).exists()]
    if missing:
        raise HostFault(
            f"{folder / missing[0]} is missing: the NVIDIA driver is not loaded, or not shown to the worker"
        )
    return tuple(str(folder / name) for name in names)


def system_files(root: Path = Path("/sys")) -> tuple[Mount, ...]:
    """Return the files of /sys that a driver reads, each by itself; those that this host lacks are left out."""
    files = sorted(path for pattern in _SYSTEM_FILES for path in root.glob(pattern))
    return tuple(Mount(str(path), f"/sys/{path.relative_to(root)}") for path in files)


def driver_library(folders: Sequence[Path] | None = None) -> tuple[Mount, ...]:
    """Return the driver's libraries as one mount, where a run's loader would not find them."""
    for folder in _searched() if folders is None else folders:
        library = folder / LIBRARY
        if library.exists():
            home = library.resolve().parent
            return () if home in _LOADERS_OWN else (Mount(str(home), DRIVER_FOLDER),)
    return ()


def _searched() -> Iterator[Path]:
    named = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    yield from (Path(name) for name in named if name.startswith("/"))
    yield from _LOADERS_OWN
    yield from _DRIVERS_OWN
