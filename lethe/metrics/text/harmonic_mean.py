"""Harmonic mean of numbers in [0, 1]."""

from collections.abc import Iterable

from scipy.stats import hmean

from lethe.metrics.core.invalid_input import InvalidMetricInput


def harmonic_mean(parts: Iterable[float]) -> float:
    """Return the harmonic mean; 0 if a part is 0. Raises InvalidMetricInput if a part is negative or there is none."""
    values = [float(part) for part in parts]
    if not values or not all(value >= 0 for value in values):
        raise InvalidMetricInput(f"a harmonic mean needs one or more numbers of at least 0, got {values}")
    if min(values) == 0:
        return 0.0
    return float(hmean(values))
