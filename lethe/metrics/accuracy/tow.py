"""Tug of war: how near forget, retain and test accuracy are to the retrained models', all at once."""

from dataclasses import replace

import numpy as np
from scipy.special import stdtrit

from lethe.metrics.accuracy.average_gap import ACCURACY_NEEDS
from lethe.metrics.attacks.svc_efficacy import CONFIDENCE_EFFICACY, ConfidenceParameters
from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.registry import Direction, Metric, Need, Resampling
from lethe.metrics.core.result import MetricResult


def tow(
    *,
    unlearned_forget: Float64,
    unlearned_retain: Float64,
    unlearned_test: Float64,
    retrained_forget: Float64,
    retrained_retain: Float64,
    retrained_test: Float64,
) -> MetricResult:
    """Return the mean over runs of the product of 1 - |difference| over the three sets, in [0, 1]; 1 is ideal.

    Every argument: accuracies per model, shape (n_models,), run i paired with retrained model i.
    table: the 95 % t-interval over runs.
    Source: Zhao et al. 2024, tug of war.
    """
    unlearned = np.stack([unlearned_retain, unlearned_forget, unlearned_test], axis=1)
    retrained = np.stack([retrained_retain, retrained_forget, retrained_test], axis=1)
    return tow_result(tow_of_differences(unlearned - retrained))


def tow_of_differences(differences: Float64) -> Float64:
    """Return the product of 1 - |difference| over the last axis, shape (n_models,)."""
    return np.asarray(np.prod(1.0 - np.abs(differences), axis=-1))


def tow_result(per_run: Float64) -> MetricResult:
    """Return the mean over runs, with the t-interval in the table."""
    mean = float(per_run.mean())
    if per_run.size < 2:
        return MetricResult(mean, per_run=per_run)
    reach = float(stdtrit(per_run.size - 1, 0.975)) * float(per_run.std(ddof=1)) / np.sqrt(per_run.size)
    return MetricResult(mean, per_run=per_run, table={"t_low": float(mean - reach), "t_high": float(mean + reach)})


TOW = Metric(
    id="tow",
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


def tow_mia(
    *,
    unlearned_mia: Float64,
    unlearned_retain: Float64,
    unlearned_test: Float64,
    retrained_mia: Float64,
    retrained_retain: Float64,
    retrained_test: Float64,
) -> MetricResult:
    """Return tug of war with the efficacy of the attack in the place of forget accuracy, in [0, 1]; 1 is ideal.

    Every argument: shares per model, shape (n_models,), run i paired with retrained model i. Where fewer models were
    attacked, only those runs count.
    Source: Zhao et al. 2024, tug of war with membership inference.
    """
    attacked = min(len(unlearned_mia), len(retrained_mia))
    return tow(
        unlearned_forget=unlearned_mia[:attacked],
        unlearned_retain=unlearned_retain[:attacked],
        unlearned_test=unlearned_test[:attacked],
        retrained_forget=retrained_mia[:attacked],
        retrained_retain=retrained_retain[:attacked],
        retrained_test=retrained_test[:attacked],
    )


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
