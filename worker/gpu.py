"""What a run on a GPU is shown of the machine: the driver's device files and that of one GPU, nothing else."""

import re
from dataclasses import replace
from pathlib import Path

from sandbox.policy import Isolation, RunPolicy
from server.competitions.config_file import Limits
from server.errors import HostFault

DRIVER_FILES = ("nvidiactl", "nvidia-uvm")
_GPU = re.compile(r"nvidia(\d+)")


def on_gpu(policy: RunPolicy, limits: Limits, *, number: int, folder: Path = Path("/dev")) -> RunPolicy:
    """Return the policy of a run that computes on GPU `number`, counted as CUDA counts them in the order of the bus.

    Raises HostFault where its device files are missing.
    """
    return replace(
        policy,
        device="cuda",
        devices=device_files(number, folder=folder),
        isolation=Isolation.SHARD if limits.isolation == "shard" else Isolation.RUN,
    )


def device_files(number: int, *, folder: Path = Path("/dev")) -> tuple[str, ...]:
    """Return the files through which one GPU is reached. In a container the GPUs there may begin at any number."""
    found = sorted(int(match[1]) for path in folder.iterdir() if (match := _GPU.fullmatch(path.name)))
    if number >= len(found):
        raise HostFault(f"GPU {number} has no device file: {folder} holds those of {len(found)} (LETHE_WORKER_GPUS)")
    names = (*DRIVER_FILES, f"nvidia{found[number]}")
    missing = [name for name in names if not (folder / name).exists()]
    if missing:
        raise HostFault(
            f"{folder / missing[0]} is missing: the NVIDIA driver is not loaded, or not shown to the worker"
        )
    return tuple(str(folder / name) for name in names)
