"""From counts of models to epsilon, in the published program's own float32 arithmetic."""

from typing import NamedTuple

import numpy as np

from lethe.metrics.scoring.arrays import Float32

_ZERO_LOG = np.float32(-1e30)


class RateLogs(NamedTuple):
    """Logarithms of every rate k/N, k = 0..N, so that an attack's epsilon is two subtractions and a maximum.

    log_rate: shape (N+1,), log(k/N); +inf at k = 0.
    log_rest: shape (N+1,), log(1 - delta - k/N); -inf at k = 0 and wherever the argument is negative.

    The infinities encode the discard rule: with a count of zero both differences of an attack become -inf. So
    max(log_rest[fp] - log_rate[fn], log_rest[fn] - log_rate[fp]) is -inf exactly for a discarded attack. Perfect
    separation (both counts zero) must be caught before.
    """

    log_rate: Float32
    log_rest: Float32


def rate_logs(n_models: int, *, delta: float) -> RateLogs:
    """Return the logarithms for rates over `n_models` models, each computed in float32 as the program does.

    Source: Triantafillou et al. 2024, algorithm 2; program: float32 means, float32 logarithms.
    """
    counts = np.arange(n_models + 1, dtype=np.float32)
    rate = counts / np.float32(n_models)
    rest = (1 - delta) - rate
    log_rate = np.full(n_models + 1, np.inf, dtype=np.float32)
    log_rate[1:] = np.log(rate[1:])
    log_rest = np.full(n_models + 1, -np.inf, dtype=np.float32)
    log_rest[rest > 0] = np.log(rest[rest > 0])
    log_rest[rest == 0] = _ZERO_LOG  # a kept attack of epsilon 0, not a discarded one
    log_rest[0] = -np.inf
    return RateLogs(log_rate, log_rest)
