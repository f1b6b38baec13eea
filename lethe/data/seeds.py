"""Every random number of a split comes from here: a seed is a function of words and an index, of nothing else."""

import hashlib
from collections.abc import Sequence

import numpy as np

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
