"""What it costs to unlearn by retraining the shards that hold the forgotten examples (SISA)."""

import numpy as np

from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Scope
from lethe.metrics.core.result import MetricResult


def isolation_cost(n_shards: int, n_forgotten: int) -> MetricResult:
    """Return the expected number of shards to retrain, within [1, n_shards].

    n_shards: P >= 1, of equal size. n_forgotten: n >= 1 examples, each in a random shard.
    table: the same as a share of all shards, and the probability that every shard has to be retrained.
    Raises InvalidMetricInput for numbers below 1.
    Source: Goel et al. 2022 (arXiv:2201.06640), appendix A; Bourtoule et al. 2021 (arXiv:1912.03817).
    """
    if n_shards < 1 or n_forgotten < 1:
        raise InvalidMetricInput(f"shards and forgotten examples must be at least 1, not {n_shards} and {n_forgotten}")
    expected = n_shards if n_shards == 1 else -n_shards * np.expm1(n_forgotten * np.log1p(-1.0 / n_shards))
    table = {"share": float(expected / n_shards), "all_shards": float(occupied_shards(n_shards, n_forgotten)[-1])}
    return MetricResult(float(expected), table=table)


def occupied_shards(n_shards: int, n_forgotten: int) -> Float64:
    """Return the probability that exactly k shards hold a forgotten example, shape (n_shards + 1,), k = 0..n_shards.

    One example after another: it falls into an occupied shard or a new one. All terms are positive; the alternating
    sum of the formula loses all digits beyond some 30 shards.
    """
    occupied = np.arange(n_shards + 1) / n_shards
    probability = np.zeros(n_shards + 1)
    probability[0] = 1.0
    for _ in range(n_forgotten):
        stays = probability * occupied
        stays[1:] += probability[:-1] * (1.0 - occupied[:-1])
        probability = stays
    return probability


METRIC = Metric(
    id="isolation_cost",
    title="Expected cost of shard-wise retraining",
    function=isolation_cost,
    needs={},
    unit="shards",
    direction=Direction.LOWER,
    scope=Scope.BENCHMARK,
    source="Goel et al. 2022 (2201.06640), appendix A",
    formula="E[Y] = P (1 - (1 - 1/P)^n); p(n) = 1 - sum_{j=1..P} (-1)^(j+1) C(P,j) (P - j)^n / P^n",
)
