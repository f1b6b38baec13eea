"""The runs of two sides as samples, and a seeded order of runs that does not depend on how they are listed."""

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64, Int64, model_rows, require_same_examples
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.order_of_runs import order_of_runs

FEWEST_RUNS = 2  # unbiased means leave out pairs of a run with itself


def drawn_order(runs: Float64, rng: np.random.Generator) -> Int64:
    """Return the positions of all runs in random order, the same for the same set of runs."""
    return order_of_runs(runs)[rng.permutation(len(runs))]


def require_runs(unlearned: npt.ArrayLike, retrained: npt.ArrayLike) -> tuple[Float64, Float64]:
    """Return the confidences of both sides, shapes (n_models, n_examples); the numbers of models may differ.

    Raises InvalidMetricInput for different examples, or fewer than 2 models on a side.
    """
    u = model_rows(unlearned, name="confidences", side=Side.UNLEARNED)
    r = model_rows(retrained, name="confidences", side=Side.RETRAINED)
    require_same_examples(unlearned=u, retrained=r)
    for side, rows in ((Side.UNLEARNED, u), (Side.RETRAINED, r)):
        if len(rows) < FEWEST_RUNS:
            raise InvalidMetricInput(f"a test of runs needs at least {FEWEST_RUNS} {side} models, not {len(rows)}")
    return u, r
