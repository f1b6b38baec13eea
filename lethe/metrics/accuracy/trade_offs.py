"""Forgetting and what is kept, in one number of accuracies: tug of war, the adaptive score, MU-Bench."""

from dataclasses import replace
from typing import Literal

import numpy as np
from scipy.special import stdtrit

from lethe.metrics.accuracy.gaps import ACCURACY_NEEDS
from lethe.metrics.attacks.classifier_attacks import CONFIDENCE_EFFICACY, ConfidenceParameters
from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Need, Parameters, Resampling
from lethe.metrics.core.result import MetricResult


def tow(**accuracies: Float64) -> MetricResult:
    """Return the mean over runs of the product of 1 - |difference| over the three sets, in [0, 1]; 1 is ideal.

    accuracies: as for `average_gap`, run i paired with retrained model i. table: the 95 % t-interval over runs.
    """
    unlearned, retrained = (
        np.stack([accuracies[f"{side}_{part}"] for part in ("retain", "forget", "test")], axis=1)
        for side in (Side.UNLEARNED, Side.RETRAINED)
    )
    per_run = tow_of_differences(unlearned - retrained)
    mean = float(per_run.mean())
    if per_run.size < 2:
        return MetricResult(mean, per_run=per_run)
    reach = float(stdtrit(per_run.size - 1, 0.975)) * float(per_run.std(ddof=1)) / np.sqrt(per_run.size)
    return MetricResult(mean, per_run=per_run, table={"t_low": float(mean - reach), "t_high": float(mean + reach)})


def tow_of_differences(differences: Float64) -> Float64:
    """Return the product of 1 - |difference| over the last axis, shape (n_models,)."""
    return np.asarray(np.prod(1.0 - np.abs(differences), axis=-1))


TOW = Metric(
    title="Tug of war",
    function=tow,
    needs=ACCURACY_NEEDS,
    unit="[0, 1]",
    direction=Direction.HIGHER,
    paired=True,
    ideal=1.0,
    bounds=(0.0, 1.0),
    resampling=Resampling.RUNS,
    source="Zhao et al. 2024 (2406.01257), tug of war; cited by Triantafillou et al. 2024, appendix A.5",
    formula="mean_i of the product over forget, retain, test of ( 1 - |acc_u,i - acc_r,i| )",
)


def tow_mia(*, unlearned_mia: Float64, retrained_mia: Float64, **accuracies: Float64) -> MetricResult:
    """Return tug of war with the efficacy of the attack in the place of forget accuracy, in [0, 1]; 1 is ideal.

    Every argument: shares per model, shape (n_models,), run i paired with retrained model i. Where fewer models were
    attacked, only those runs count.
    """
    given = {**accuracies, "unlearned_forget": unlearned_mia, "retrained_forget": retrained_mia}
    attacked = min(len(unlearned_mia), len(retrained_mia))
    return tow(**{name: values[:attacked] for name, values in given.items()})


TOW_MIA = replace(
    TOW,
    id="tow_mia",
    title="Tug of war with membership attack",
    function=tow_mia,
    needs={
        **{name: need for name, need in ACCURACY_NEEDS.items() if not name.endswith("_forget")},
        "unlearned_mia": Need(CONFIDENCE_EFFICACY),
        "retrained_mia": Need(CONFIDENCE_EFFICACY, Side.RETRAINED),
    },
    defaults=ConfidenceParameters,
    version=2,
    source="Zhao et al. 2024 (2406.01257), tug of war with membership inference",
    formula="mean_i ( 1 - |MIA_u,i - MIA_r,i| ) ( 1 - |RA_u,i - RA_r,i| ) ( 1 - |TA_u,i - TA_r,i| )",
    paper_and_code="MIA is the efficacy of an SVC on the probability of the true class.",
)


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


AUS = Metric(
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


def mubench_harmonic_mean(test: Float64, forget: Float64, original_test: Float64, n_classes: int) -> MetricResult:
    """Return the mean over runs of the harmonic mean of 1 - |TA_u - TA_o| and 1 - |FA_u - 1/C|, in [0, 1].

    test, forget: accuracies of the unlearned models, shape (n_models,). original_test: of the original models, one
    per run. n_classes: C, 2 or more.
    Raises InvalidMetricInput for fewer than 2 classes.
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


MUBENCH_HARMONIC_MEAN = Metric(
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
