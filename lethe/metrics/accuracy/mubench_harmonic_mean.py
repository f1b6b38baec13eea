"""Test accuracy near the original's and forget accuracy near chance, in one number."""

import numpy as np

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Need, Resampling
from lethe.metrics.core.result import MetricResult


def mubench_harmonic_mean(test: Float64, forget: Float64, original_test: Float64, n_classes: int) -> MetricResult:
    """Return the mean over runs of the harmonic mean of 1 - |TA_u - TA_o| and 1 - |FA_u - 1/C|, in [0, 1].

    test, forget: accuracies of the unlearned models, shape (n_models,). original_test: of the original models, one
    per run. n_classes: C, 2 or more.
    Raises InvalidMetricInput for fewer than 2 classes.
    Source: Cheng and Amiri 2024, MU-Bench.
    """
    classes = int(n_classes)
    if classes < 2:
        raise InvalidMetricInput(f"chance needs at least 2 classes, not {classes}")
    per_run = harmonic_mean(1.0 - np.abs(test - original_test), 1.0 - np.abs(forget - 1.0 / classes))
    return MetricResult(float(per_run.mean()), per_run=per_run)


def harmonic_mean(first: Float64, second: Float64) -> Float64:
    """Return 2ab / (a + b), elementwise; 0 where both are 0."""
    total = first + second
    return np.asarray(2.0 * first * second / np.where(total > 0.0, total, 1.0))


METRIC = Metric(
    id="mubench_harmonic_mean",
    title="MU-Bench harmonic mean",
    function=mubench_harmonic_mean,
    needs={
        "test": Need("test_accuracy"),
        "forget": Need("forget_accuracy"),
        "original_test": Need("test_accuracy", Side.ORIGINAL),
        "n_classes": Need("n_classes", Side.SHARED),
    },
    unit="[0, 1]",
    direction=Direction.HIGHER,
    paired=True,
    bounds=(0.0, 1.0),
    resampling=Resampling.RUNS,
    source="Cheng and Amiri 2024, MU-Bench (2406.14796)",
    formula="mean_i HM( 1 - |TA_u,i - TA_o,i| , 1 - |FA_u,i - 1/C| )",
    paper_and_code="Exact retraining is not ideal here: it generalises, so its forget accuracy is far above chance.",
)
