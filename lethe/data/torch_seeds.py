"""torch's generators, from the seeds of `lethe.data.seeds`."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def torch_generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@contextmanager
def global_generators(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Let what draws from torch's global generators (initial weights, dropout) draw from `seed`; then restore them.

    device: whose generator is meant beside the processor's. `torch.manual_seed` also formats the stack of its caller
    for each kind of accelerator that the machine lacks.
    """
    devices = [torch.device(device)] if torch.device(device).type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        if devices:
            torch.manual_seed(seed)
        else:
            torch.default_generator.manual_seed(seed)
        yield
