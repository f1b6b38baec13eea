"""What every measurement here needs: a clock that waits for the device, and the device's own ceiling."""

import os
import platform
import time
from collections.abc import Callable

import torch

SIDE = {"cpu": 1536, "cuda": 8192}


def seconds(work: Callable[[], object], *, device: str, repeats: int = 3) -> float:
    """Return the median time of `work`, run once before to warm up."""
    work()
    times = []
    for _ in range(repeats):
        synchronize(device)
        started = time.perf_counter()
        work()
        synchronize(device)
        times.append(time.perf_counter() - started)
    return sorted(times)[len(times) // 2]


def synchronize(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def matmul_flops(device: str, dtype: torch.dtype) -> float:
    """Return the rate of a large matrix product, floating-point operations a second."""
    side = SIDE["cpu" if device == "cpu" else "cuda"]
    a = torch.randn(side, side, device=device).to(dtype)
    return 2 * side**3 / seconds(lambda: a @ a, device=device, repeats=5)


def forward_flops(net: torch.nn.Module, inputs: torch.Tensor) -> int:
    """Return the operations of one forward pass over `inputs`, as torch counts them."""
    from torch.utils.flop_counter import FlopCounterMode  # noqa: PLC0415 - slow to import

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        net(inputs)
    return int(counter.get_total_flops())


def describe_machine(device: str) -> str:
    name = platform.processor() or platform.machine() if device == "cpu" else torch.cuda.get_device_name()
    return f"{name}, {os.cpu_count()} cores, {torch.get_num_threads()} torch threads, torch {torch.__version__}"
