"""Orders of runs that do not depend on how they are listed: by their values, and drawn by a seed."""

import numpy as np
from numpy.typing import NDArray


def order_of_runs(runs: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return positions that sort runs by their sorted values, shape (n_models,).

    runs: shape (n_models, n_examples). The order of the examples has no effect either.
    """
    return np.asarray(np.lexsort(np.sort(runs, axis=1).T[::-1]), np.int64)


def drawn_order(runs: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the positions of all runs in random order, the same for the same set of runs."""
    return order_of_runs(runs)[rng.permutation(len(runs))]
