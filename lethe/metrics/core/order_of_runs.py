"""An order of runs by their values, so that seeded draws do not depend on how the runs are listed."""

import numpy as np
from numpy.typing import NDArray


def order_of_runs(runs: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return positions that sort runs by their sorted values, shape (n_models,).

    runs: shape (n_models, n_examples). The order of the examples has no effect either.
    """
    return np.asarray(np.lexsort(np.sort(runs, axis=1).T[::-1]), np.int64)
