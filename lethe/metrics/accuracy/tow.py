"""Tug of war: how near forget, retain and test accuracy are to the retrained models', all at once."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from lethe.metrics.accuracy.average_gap import ACCURACY_NEEDS
from lethe.metrics.attacks.svc_efficacy import CONFIDENCE_EFFICACY, ConfidenceParameters
from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64, require_same_models, shares
from lethe.metrics.core.registry import Direction, Metric, Need, Resampling
from lethe.metrics.core.result import MetricResult


def tow(
    *,
    unlearned_forget: npt.ArrayLike,
    unlearned_retain: npt.ArrayLike,
    unlearned_test: npt.ArrayLike,
    retrained_forget: npt.ArrayLike,
    retrained_retain: npt.ArrayLike,
    retrained_test: npt.ArrayLike,
) -> MetricResult:
    """Return the mean over runs of the product of 1 - |difference| over the three sets, in [0, 1]; 1 is ideal.

    Every argument: accuracies per model, shape (n_models,), run i paired with retrained model i.
    table: the 95 % t-interval over runs. Raises InvalidMetricInput for unequal numbers or values outside [0, 1].
    Source: Zhao et al. 2024, tug of war.
    """
    unlearned = _stacked(Side.UNLEARNED, retain=unlearned_retain, forget=unlearned_forget, test=unlearned_test)
    retrained = _stacked(Side.RETRAINED, retain=retrained_retain, forget=retrained_forget, test=retrained_test)
    require_same_models(unlearned=unlearned, retrained=retrained)
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


def _stacked(side: Side, **parts: npt.ArrayLike) -> Float64:
    checked = {
        name: shares(values, axes=("models",), name=f"{name} accuracies", side=side) for name, values in parts.items()
    }
    require_same_models(**checked)
    return np.stack(list(checked.values()), axis=1)


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
    unlearned_mia: npt.ArrayLike,
    unlearned_retain: npt.ArrayLike,
    unlearned_test: npt.ArrayLike,
    retrained_mia: npt.ArrayLike,
    retrained_retain: npt.ArrayLike,
    retrained_test: npt.ArrayLike,
) -> MetricResult:
    """Return tug of war with the efficacy of the attack in the place of forget accuracy, in [0, 1]; 1 is ideal.

    Every argument: shares per model, shape (n_models,), run i paired with retrained model i. Where fewer models were
    attacked, only those runs count.
    Source: Zhao et al. 2024, tug of war with membership inference.
    """
    require_same_models(unlearned=np.asarray(unlearned_retain), retrained=np.asarray(retrained_retain))
    attacked = min(np.shape(unlearned_mia)[0], np.shape(retrained_mia)[0])
    return tow(
        unlearned_forget=np.asarray(unlearned_mia)[:attacked],
        unlearned_retain=np.asarray(unlearned_retain)[:attacked],
        unlearned_test=np.asarray(unlearned_test)[:attacked],
        retrained_forget=np.asarray(retrained_mia)[:attacked],
        retrained_retain=np.asarray(retrained_retain)[:attacked],
        retrained_test=np.asarray(retrained_test)[:attacked],
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
