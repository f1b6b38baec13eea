"""How far the predictions on the forget set are from the retrained model's."""

import numpy as np
import numpy.typing as npt

from lethe.metrics.array_catalogue import Side
from lethe.metrics.arrays import (
    Float64,
    probability_rows,
    require_same_classes,
    require_same_examples,
    require_same_models,
)
from lethe.metrics.registry import Direction, Metric, Need, Resampling
from lethe.metrics.result import MetricResult


def activation_l2(unlearned: npt.ArrayLike, retrained: npt.ArrayLike) -> MetricResult:
    """Return the mean over runs and examples of the Euclidean distance of the predictions, in [0, sqrt(2)]; 0 is ideal.

    unlearned, retrained: probabilities, shapes (n_models, n_examples, n_classes) each, run i paired with model i.
    Raises InvalidMetricInput for rows that are no probabilities, or other models, examples or classes.
    Source: Chundawat et al. 2023, activation distance.
    """
    p, q = paired_probabilities(unlearned, retrained)
    distance = np.stack([np.sqrt(((a - b) ** 2).sum(axis=1)) for a, b in zip(p, q, strict=True)])
    return mean_over_examples(distance)


def paired_probabilities(unlearned: npt.ArrayLike, retrained: npt.ArrayLike) -> tuple[Float64, Float64]:
    """Return both sides checked, of the same models, examples and classes."""
    p = probability_rows(unlearned, name="probabilities", side=Side.UNLEARNED)
    q = probability_rows(retrained, name="probabilities", side=Side.RETRAINED)
    require_same_models(unlearned=p, retrained=q)
    require_same_examples(unlearned=p, retrained=q)
    require_same_classes(unlearned=p, retrained=q)
    return p, q


def mean_over_examples(values: Float64) -> MetricResult:
    """Return the mean of values of shape (n_models, n_examples), with the means per run and per example."""
    per_run = values.mean(axis=1)
    return MetricResult(float(per_run.mean()), per_run=per_run, per_example=values.mean(axis=0))


METRIC = Metric(
    id="activation_l2",
    title="Activation distance",
    function=activation_l2,
    needs={
        "unlearned": Need("forget_probabilities"),
        "retrained": Need("forget_probabilities", Side.RETRAINED),
    },
    unit="L2 distance",
    direction=Direction.LOWER,
    paired=True,
    per_example=True,
    ideal=0.0,
    bounds=(0.0, float(np.sqrt(2.0))),
    resampling=Resampling.RUNS,
    source="Chundawat et al. 2023 (2205.08096), activation distance",
    formula="mean_i mean_x || p_u,i(x) - p_r,i(x) ||_2",
)
