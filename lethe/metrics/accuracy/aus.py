"""Adaptive unlearning score: forgetting against the test accuracy that is lost."""

from typing import Literal

import numpy as np

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Need, Parameters, Resampling
from lethe.metrics.core.result import MetricResult


class AusParameters(Parameters):
    """target: the forget accuracy aimed at: the model's test accuracy, or 0 when entire classes are removed.

    With "zero", all accuracies are of test examples: of the removed classes, and of the classes that stay.
    """

    target: Literal["test_accuracy", "zero"] = "test_accuracy"


def aus(forget: Float64, test: Float64, original_test: Float64, *, target: str = "test_accuracy") -> MetricResult:
    """Return the mean over runs of (1 - loss of test accuracy) / (1 + |forget accuracy - target|); higher is better.

    forget, test: accuracies of the unlearned models, shape (n_models,). original_test: of the original models, one
    per run. target: "test_accuracy" (random examples) or "zero" (classes): then `forget` is of the test examples of the
    removed classes, and the other two are of all other test examples.
    Source: Cotogni et al. 2023 (DUCK), adaptive unlearning score.
    """
    aim = test if target == "test_accuracy" else np.zeros_like(test)
    per_run = (1.0 - (original_test - test)) / (1.0 + np.abs(forget - aim))
    return MetricResult(float(per_run.mean()), per_run=per_run)


def aus_of_target(
    forget: Float64,
    test: Float64,
    original_test: Float64,
    *,
    forgotten_classes: Float64 | None,
    kept_classes: Float64 | None,
    original_kept_classes: Float64 | None,
    target: str = "test_accuracy",
) -> MetricResult:
    """Return `aus` of the accuracies that its target asks for. The last three: test accuracies by class.

    Raises InvalidMetricInput for "zero" where accuracies by class cannot be had.
    """
    if target == "test_accuracy":
        return aus(forget, test, original_test)
    by_class = (forgotten_classes, kept_classes, original_kept_classes)
    known = [values for values in by_class if values is not None]
    if len(known) < len(by_class):
        raise InvalidMetricInput(
            'target = "zero" needs test accuracies by class, of the unlearned and the original models: add '
            "`test_logits` with `test_labels` and `forget_labels`, or `confusion`; a split stores them with `capture` "
            "of 2 or 3"
        )
    if any(np.isnan(values).any() for values in known):
        raise InvalidMetricInput(
            'target = "zero" is for classes that are removed: the test set must have examples of the classes in the '
            "forget set, and of others"
        )
    return aus(*known, target=target)


METRIC = Metric(
    id="aus",
    title="Adaptive unlearning score",
    function=aus_of_target,
    needs={
        "forget": Need("forget_accuracy"),
        "test": Need("test_accuracy"),
        "original_test": Need("test_accuracy", Side.ORIGINAL),
        "forgotten_classes": Need("forgotten_classes_test_accuracy", optional=True),
        "kept_classes": Need("kept_classes_test_accuracy", optional=True),
        "original_kept_classes": Need("kept_classes_test_accuracy", Side.ORIGINAL, optional=True),
    },
    unit="[0, 2]",
    direction=Direction.HIGHER,
    defaults=AusParameters,
    paired=True,
    bounds=(0.0, 2.0),
    resampling=Resampling.RUNS,
    source="Cotogni et al. 2023, DUCK (2312.02052); cited by Triantafillou et al. 2024, appendix A.5",
    formula=(
        "mean_i ( 1 - (TA_o,i - TA_u,i) ) / ( 1 + |FA_u,i - target| ); target TA_u,i, or 0 for removed classes: then "
        "FA_u is the accuracy on test examples of the removed classes, TA_u and TA_o those on all other test examples"
    ),
    paper_and_code=(
        "For classes the paper says forget and test set; its program (OcraM17/DUCK at 181de8b, src/main_def.py: AUS) "
        "divides the test set by class, as here. It takes the formula of accuracies that are means over runs, and the "
        "original's as a constant; here the mean is of the runs' values."
    ),
    version=2,
)
