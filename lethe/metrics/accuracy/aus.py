"""Adaptive unlearning score: forgetting against the test accuracy that is lost."""

from typing import Literal

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import require_same_models, shares
from lethe.metrics.core.registry import Direction, Metric, Need, Parameters, Resampling
from lethe.metrics.core.result import MetricResult


class AusParameters(Parameters):
    """target: the forget accuracy aimed at: the model's test accuracy, or 0 when an entire class is removed."""

    target: Literal["test_accuracy", "zero"] = "test_accuracy"


def aus(
    forget: npt.ArrayLike, test: npt.ArrayLike, original_test: npt.ArrayLike, *, target: str = "test_accuracy"
) -> MetricResult:
    """Return the mean over runs of (1 - loss of test accuracy) / (1 + |forget accuracy - target|); higher is better.

    forget, test: accuracies of the unlearned models, shape (n_models,). original_test: of the original models, one
    per run. target: "test_accuracy" (random examples) or "zero" (a class).
    Raises InvalidMetricInput for unequal numbers or values outside [0, 1].
    Source: Cotogni et al. 2023 (DUCK), adaptive unlearning score.
    """
    fa = shares(forget, axes=("models",), name="forget accuracies", side=Side.UNLEARNED)
    ta = shares(test, axes=("models",), name="test accuracies", side=Side.UNLEARNED)
    before = shares(original_test, axes=("models",), name="test accuracies", side=Side.ORIGINAL)
    require_same_models(forget=fa, test=ta, original=before)
    aim = ta if target == "test_accuracy" else np.zeros_like(ta)
    per_run = (1.0 - (before - ta)) / (1.0 + np.abs(fa - aim))
    return MetricResult(float(per_run.mean()), per_run=per_run)


METRIC = Metric(
    id="aus",
    title="Adaptive unlearning score",
    function=aus,
    needs={
        "forget": Need("forget_accuracy"),
        "test": Need("test_accuracy"),
        "original_test": Need("test_accuracy", Side.ORIGINAL),
    },
    unit="[0, 2]",
    direction=Direction.HIGHER,
    defaults=AusParameters,
    paired=True,
    bounds=(0.0, 2.0),
    resampling=Resampling.RUNS,
    source="Cotogni et al. 2023, DUCK (2312.02052); cited by Triantafillou et al. 2024, appendix A.5",
    formula="mean_i ( 1 - (TA_o,i - TA_u,i) ) / ( 1 + |FA_u,i - target| ); target TA_u,i, or 0 for a removed class",
)
