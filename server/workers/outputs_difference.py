"""Whether two machines gave the same outputs for the same runs, to a tolerance."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lethe.evaluation.shard_outputs import ShardOutputs

NOT_COMPARED = ("wall_time_s", "cpu_time_s")


@dataclass(frozen=True)
class Difference:
    """The array that differs most for its tolerance, and by how much; `size` is infinite where the forms differ."""

    array: str
    size: float

    def __str__(self) -> str:
        return f"{self.array} differ by {self.size:.3g}"


def rows(outputs: ShardOutputs, first: int, n_runs: int) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of some of a shard's runs. first: counted from the shard's own first run."""
    return {name: array[first : first + n_runs] for name, array in outputs.arrays().items() if name not in NOT_COMPARED}


def find_difference(
    there: dict[str, NDArray[np.generic]], here: dict[str, NDArray[np.generic]], *, tolerance: float
) -> Difference | None:
    """Return what differs by more than `tolerance`, None if nothing does.

    Of a run's confidences the largest difference counts, of its other arrays the mean, as a share of values above 1;
    of whole numbers and truth values the share that is not equal.
    """
    if there.keys() != here.keys():
        return Difference("names of arrays", np.inf)
    found = [Difference(name, _size(name, there[name], here[name])) for name in sorted(here)]
    worst = max(found, key=lambda difference: difference.size)
    return worst if worst.size > tolerance else None


def _size(name: str, there: NDArray[np.generic], here: NDArray[np.generic]) -> float:
    if there.shape != here.shape or there.dtype != here.dtype:
        return np.inf
    if not here.size:
        return 0.0
    runs = here.shape[0]
    if not np.issubdtype(here.dtype, np.floating):
        return float((there != here).reshape(runs, -1).mean(axis=1).max())
    a, b = there.astype(np.float64), here.astype(np.float64)
    both_nan = np.isnan(a) & np.isnan(b)  # the accuracy of a class without images
    apart = np.where(both_nan, 0.0, np.abs(a - b) / np.maximum(1.0, np.abs(b))).reshape(runs, -1)
    if np.isnan(apart).any():
        return np.inf
    by_run = np.abs(a - b).reshape(runs, -1).max(axis=1) if name == "confidences" else apart.mean(axis=1)
    return float(by_run.max())
