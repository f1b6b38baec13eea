"""Which of two scores on one split is the better, by the paired test over models.

The arithmetic is that of `lethe.metrics.scoring.resampling`, without scipy; a test holds the two equal.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from server.errors import Conflict

NORMAL_QUANTILE_95 = 1.959963984540054
SIGNIFICANCE = 0.05


@dataclass(frozen=True)
class Paired:
    """A paired comparison: the first score minus the second. interval: 95 %. p_value: two-sided, normal."""

    difference: float
    standard_error: float
    interval: tuple[float, float]
    p_value: float

    @property
    def winner(self) -> int:
        """Return 1 if the first is better, 2 if the second is, 0 if the test does not distinguish them."""
        if self.p_value >= SIGNIFICANCE or self.difference == 0.0:
            return 0
        return 1 if self.difference > 0.0 else 2


def compare(
    first: float, second: float, *, replicates: tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]
) -> Paired:
    """Compare two final scores by the replicates stored with them. Raises Conflict if these are not paired."""
    a, b = replicates
    if a is None or b is None:
        raise Conflict(
            "One of the scores has no replicates: it is older, none were asked for, or more than the score ranks here"
        )
    headlines = np.asarray(a["headline"], np.float64), np.asarray(b["headline"], np.float64)
    if _drawn(a) != _drawn(b):
        raise Conflict("The scores were resampled in different ways, and so cannot be paired")
    if np.isnan(headlines).any():
        raise Conflict("A replicate has no utility ratio: its retrained models all have accuracy 0")
    difference = first - second
    error = float(a["factor"]) * float((headlines[0] - headlines[1]).std(ddof=1))
    reach = NORMAL_QUANTILE_95 * error
    return Paired(difference, error, (difference - reach, difference + reach), two_sided_p_value(difference, error))


def _drawn(replicates: Mapping[str, Any]) -> tuple[int, int, int]:
    return int(replicates["seed"]), int(replicates["n_models"]), len(replicates["headline"])


def two_sided_p_value(difference: float, error: float) -> float:
    """Return the chance that a normal difference of mean 0 is at least this large; 1 for no difference at all."""
    if difference == 0.0:
        return 1.0
    return math.erfc(abs(difference) / error / math.sqrt(2.0)) if error else 0.0
