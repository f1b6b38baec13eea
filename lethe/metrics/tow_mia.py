"""Tug of war with a membership attack in the place of forget accuracy."""

import numpy as np
import numpy.typing as npt

from lethe.metrics.array_catalogue import Side
from lethe.metrics.arrays import require_same_models
from lethe.metrics.average_gap import ACCURACY_NEEDS
from lethe.metrics.registry import Direction, Metric, Need, Resampling
from lethe.metrics.result import MetricResult
from lethe.metrics.svc_efficacy import CONFIDENCE_EFFICACY, ConfidenceParameters
from lethe.metrics.tow import tow


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


METRIC = Metric(
    id="tow_mia",
    title="Tug of war with membership attack",
    function=tow_mia,
    needs={
        **{name: need for name, need in ACCURACY_NEEDS.items() if not name.endswith("_forget")},
        "unlearned_mia": Need(CONFIDENCE_EFFICACY),
        "retrained_mia": Need(CONFIDENCE_EFFICACY, Side.RETRAINED),
    },
    unit="[0, 1]",
    direction=Direction.HIGHER,
    defaults=ConfidenceParameters,
    paired=True,
    ideal=1.0,
    version=2,
    bounds=(0.0, 1.0),
    resampling=Resampling.RUNS,
    source="Zhao et al. 2024 (2406.01257), tug of war with membership inference",
    formula="mean_i ( 1 - |MIA_u,i - MIA_r,i| ) ( 1 - |RA_u,i - RA_r,i| ) ( 1 - |TA_u,i - TA_r,i| )",
    paper_and_code="MIA is the efficacy of an SVC on the probability of the true class.",
)
