"""How epsilon is spread over the forget examples."""

import math

import numpy as np
from pydantic import Field

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Metric, Need, Parameters
from lethe.metrics.core.result import MetricResult

PERCENTILES = (5, 25, 50, 75, 95, 100)


class EpsilonHistogramParameters(Parameters):
    """bin_width: in nats. cap: the epsilon given to an example that an attack tells apart without error."""

    bin_width: float = Field(0.5, gt=0.0)
    cap: float = Field(50.0, gt=0.0)


def epsilon_histogram(epsilon: Float64, n_models: int, *, bin_width: float = 0.5, cap: float = 50.0) -> MetricResult:
    """Return the median epsilon in nats, with the histogram, percentiles and the share at the cap.

    epsilon: shape (n_examples,), >= 0. n_models: models on each side, > 2. The bins cover [0, ceil(log(N - 1))]; the
    last one also takes what lies above it and below the cap; examples at the cap are counted apart.
    Source: Triantafillou et al. 2024, appendix A.9, figure 13.
    """
    values = epsilon
    top = float(largest_epsilon(int(n_models)))
    edges = np.arange(0.0, top + bin_width / 2.0, bin_width)
    below = values[values < cap]
    counts = np.histogram(np.minimum(below, edges[-1]), bins=edges)[0]
    table: dict[str, float] = {f"percentile_{p}": float(np.percentile(values, p)) for p in PERCENTILES}
    table["share_above_4"] = float(np.mean(values > 4.0))
    table["share_at_cap"] = float(np.mean(values >= cap))
    return MetricResult(
        float(np.median(values)),
        per_example=values,
        table=table,
        arrays={"edges": edges, "counts": counts, "at_cap": np.asarray(values.size - below.size)},
    )


def largest_epsilon(n_models: int) -> int:
    """Return ceil(log(N - 1)), which no epsilon estimated from N models a side exceeds but the cap."""
    if n_models < 3:
        raise InvalidMetricInput(f"epsilon needs at least 3 models on each side, not {n_models}")
    return math.ceil(math.log(n_models - 1))


METRIC = Metric(
    title="Epsilon per example",
    function=epsilon_histogram,
    needs={"epsilon": Need("epsilon"), "n_models": Need("n_models", Side.SHARED)},
    unit="nats (median)",
    defaults=EpsilonHistogramParameters,
    per_example=True,
    ideal=0.0,
    bounds=(0.0, float("inf")),
    source="Triantafillou et al. 2024 (2406.09073), appendix A.9, figure 13",
    formula="median over examples of epsilon; histogram in bins of 0.5 on [0, ceil(log(N - 1))], a bar at the cap",
)
