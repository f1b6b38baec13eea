"""Every random number of a split comes from here: a seed is a function of words and an index, of nothing else."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

SCHEME = "first 63 bits of sha256 of the words joined by '/'"


def derive_seed(*words: str | int) -> int:
    """Return the seed, in [0, 2^63), that belongs to these words."""
    text = "/".join(str(word) for word in words)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def derive_seeds(*words: str | int, indices: Sequence[int]) -> list[int]:
    """Return one seed for each index."""
    return [derive_seed(*words, index) for index in indices]


def numpy_generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


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
