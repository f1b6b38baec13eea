"""How far apart the weights of two networks are."""

import math
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Need, Resampling
from lethe.metrics.core.result import MetricResult

Weights = Mapping[str, npt.ArrayLike]


def weight_distance(first: Weights, second: Weights) -> MetricResult:
    """Return the L2 distance of all weights, >= 0.

    first, second: arrays by name, trained parameters only (no buffers such as running means), equal names and shapes.
    table: the distance over the norm of the first, the norm of the first, and the distance of the weights scaled to
    unit norm (both None where a norm is 0).
    A diagnostic, no measure of forgetting: two retrained models are as far apart. Show it beside the distances from
    original to retrained and between two retrained models.
    Raises InvalidMetricInput for other names or shapes, or weights that are not finite.
    Source: Cadet et al. 2024 (arXiv:2410.01276), appendix C; Golatkar et al. 2020 for the ratio.
    """
    a, b = _flat(first, side="first"), _flat(second, side="second")
    if set(a) != set(b):
        raise InvalidMetricInput(f"the networks differ in the parameters {sorted(set(a) ^ set(b))}")
    wrong = [name for name in a if a[name].shape != b[name].shape]
    if wrong:
        raise InvalidMetricInput(
            f"the networks differ in the size of {wrong[0]}: {a[wrong[0]].size}, {b[wrong[0]].size}"
        )
    norm_a, norm_b = _norm(a.values()), _norm(b.values())
    distance = _norm(a[name] - b[name] for name in a)
    unit = _norm(a[name] / norm_a - b[name] / norm_b for name in a) if norm_a and norm_b else None
    ratio = distance / norm_a if norm_a else None
    return MetricResult(distance, table={"over_norm": ratio, "norm": norm_a, "of_unit_weights": unit})


def mean_weight_distance(distance: Float64, norm: Float64, retrained_norm: Float64) -> MetricResult:
    """Return the mean L2 distance of models from retrained ones, model i from retrained model i.

    distance, norm, retrained_norm: shape (k,) each, >= 0; where they are of unequal length, the first of each count.
    table: the mean distance over the norm, the mean norm, and the mean distance of the weights scaled to unit norm
    (None where a norm is 0).
    Source: as `weight_distance`.
    """
    columns = (distance, norm, retrained_norm)
    n_models = min(column.size for column in columns)
    apart, own, other = (column[:n_models] for column in columns)
    table: dict[str, float | None] = {"over_norm": None, "norm": float(own.mean()), "of_unit_weights": None}
    if own.all() and other.all():
        unit_squared = 2.0 - (own**2 + other**2 - apart**2) / (own * other)  # |a/|a| - b/|b||^2 by the law of cosines
        table["over_norm"] = float((apart / own).mean())
        table["of_unit_weights"] = float(np.sqrt(np.maximum(unit_squared, 0.0)).mean())
    return MetricResult(float(apart.mean()), per_run=apart, table=table)


def _flat(weights: Weights, *, side: str) -> dict[str, Float64]:
    flat = {name: np.asarray(values, np.float64).reshape(-1) for name, values in weights.items()}
    if not flat:
        raise InvalidMetricInput(f"the {side} network has no parameters", side=side)
    for name, values in flat.items():
        if not np.isfinite(values).all():
            raise InvalidMetricInput(f"{name} of the {side} network holds a value that is not finite", side=side)
    return flat


def _norm(parts: Iterable[Float64]) -> float:
    return math.sqrt(math.fsum(float(part @ part) for part in parts))


METRIC = Metric(
    id="weight_distance",
    title="Distance of weights",
    function=mean_weight_distance,
    needs={
        "distance": Need("weight_distance"),
        "norm": Need("weight_norm"),
        "retrained_norm": Need("weight_norm", Side.RETRAINED),
    },
    unit="L2 distance",
    direction=Direction.NONE,
    paired=True,
    unequal_too=True,
    bounds=(0.0, float("inf")),
    resampling=Resampling.RUNS,
    source="Cadet et al. 2024 (2410.01276), appendix C; Golatkar et al. 2020 (1911.04933)",
    formula="mean_i || theta_u_i - theta_r_i ||, and over || theta_u_i ||",
)
