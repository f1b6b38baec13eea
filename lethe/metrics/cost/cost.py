"""What unlearning costs: against retraining, and by retraining the shards that hold the forgotten examples (SISA)."""

import numpy as np

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Need, Resampling, Scope
from lethe.metrics.core.result import MetricResult


def rte(wall_time_s: Float64, retraining_time_s: float) -> MetricResult:
    """Return the time of one retraining over the median time of a run, > 0; above 1 is faster than retraining.

    wall_time_s: of every run, shape (n_models,), seconds. retraining_time_s: one number, measured on the same kind of
    device. per_run: the ratio of every run.
    """
    return MetricResult(float(retraining_time_s / np.median(wall_time_s)), per_run=retraining_time_s / wall_time_s)


RTE = Metric(
    title="Run time efficiency (RTE)",
    function=rte,
    needs={"wall_time_s": Need("wall_time_s"), "retraining_time_s": Need("retraining_time_s", Side.SHARED)},
    unit="times",
    direction=Direction.HIGHER,
    resampling=Resampling.MODELS,
    bounds=(0.0, float("inf")),
    source="Cadet et al. 2024 (2410.01276), section 5.4",
    formula="t_retraining / median_i t_i",
)


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


ISOLATION_COST = Metric(
    title="Expected cost of shard-wise retraining",
    function=isolation_cost,
    unit="shards",
    scope=Scope.BENCHMARK,
    source="Goel et al. 2022 (2201.06640), appendix A",
    formula="E[Y] = P (1 - (1 - 1/P)^n); p(n) = 1 - sum_{j=1..P} (-1)^(j+1) C(P,j) (P - j)^n / P^n",
)
