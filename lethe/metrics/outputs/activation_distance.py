"""How far the predictions on the forget set are from the retrained models'."""

from dataclasses import replace

import numpy as np

from lethe.metrics.core.arrays import (
    Float64,
)
from lethe.metrics.core.jensen_shannon import jensen_shannon
from lethe.metrics.core.processors import in_threads
from lethe.metrics.core.registry import Direction, Metric, Resampling, both_sides
from lethe.metrics.core.result import MetricResult


def activation_l2(unlearned: Float64, retrained: Float64) -> MetricResult:
    """Return the mean over runs and examples of the Euclidean distance of the predictions, in [0, sqrt(2)]; 0 is ideal.

    unlearned, retrained: probabilities, shapes (n_models, n_examples, n_classes) each, run i paired with model i.
    Source: Chundawat et al. 2023, activation distance.
    """
    distance = np.stack([np.sqrt(((a - b) ** 2).sum(axis=1)) for a, b in zip(unlearned, retrained, strict=True)])
    return mean_over_examples(distance)


def mean_over_examples(values: Float64) -> MetricResult:
    """Return the mean of values of shape (n_models, n_examples), with the means per run and per example."""
    per_run = values.mean(axis=1)
    return MetricResult(float(per_run.mean()), per_run=per_run, per_example=values.mean(axis=0))


ACTIVATION_L2 = Metric(
    id="activation_l2",
    title="Activation distance",
    function=activation_l2,
    needs=both_sides("forget_probabilities"),
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


def activation_l1(unlearned: Float64, retrained: Float64) -> MetricResult:
    """Return the mean L1 distance between the probabilities of paired models, in [0, 2]; 0 is ideal.

    unlearned, retrained: shape (n_models, n_examples, n_classes) each, rows that sum to one.
    per_run: mean over examples. per_example: mean over pairs.
    Source: Goel et al. 2022 (arXiv:2201.06640), table 1; their program, `activations_distance`.
    """
    return mean_over_examples(np.abs(unlearned - retrained).sum(axis=2))


ACTIVATION_L1 = replace(
    ACTIVATION_L2,
    id="activation_l1",
    title="L1 distance of probabilities",
    function=activation_l1,
    unit="L1 distance",
    bounds=(0.0, 2.0),
    source="Goel et al. 2022 (2201.06640), table 1",
    formula="mean_x sum_c |p_u(c|x) - p_r(c|x)|",
)


def js_to_retrained(unlearned: Float64, retrained: Float64) -> MetricResult:
    """Return the mean over runs and examples of the Jensen-Shannon divergence in base 2, in [0, 1]; 0 is ideal.

    unlearned, retrained: probabilities, shapes (n_models, n_examples, n_classes) each, run i paired with model i.
    Source: Lin 1991 for the divergence; Chundawat et al. 2023 for comparing predictions by it.
    """
    pairs = zip(*(map(np.ascontiguousarray, side) for side in (unlearned, retrained)), strict=True)
    return mean_over_examples(np.stack(in_threads(lambda pair: jensen_shannon(*pair), pairs)))


JS_TO_RETRAINED = replace(
    ACTIVATION_L2,
    id="js_to_retrained",
    title="Jensen-Shannon divergence to retrained",
    function=js_to_retrained,
    needs=ACTIVATION_L2.needs,
    unit="base 2, [0, 1]",
    bounds=(0.0, 1.0),
    source="Lin 1991, IEEE Transactions on Information Theory 37(1); Chundawat et al. 2023 (2205.08096)",
    formula="mean_i mean_x JS_2( p_u,i(x), p_r,i(x) )",
)
