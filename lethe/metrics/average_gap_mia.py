"""The mean of the gaps in forget, retain and test accuracy and in the efficacy of a membership attack."""

import numpy.typing as npt

from lethe.metrics.array_catalogue import Side
from lethe.metrics.average_gap import ACCURACY_NEEDS, average_gap, percent_gap
from lethe.metrics.registry import Direction, Metric, Need, Resampling
from lethe.metrics.result import MetricResult
from lethe.metrics.svc_efficacy import CONFIDENCE_EFFICACY, ConfidenceParameters


def average_gap_mia(
    *, unlearned_mia: npt.ArrayLike, retrained_mia: npt.ArrayLike, **accuracies: npt.ArrayLike
) -> MetricResult:
    """Return the mean of four gaps in percentage points; 0 is ideal.

    unlearned_mia, retrained_mia: efficacy of the attack per model, shape (n_models,). accuracies: the arguments of
    `average_gap`.
    Source: Fan et al. 2024 (SalUn), the average gap of their tables.
    """
    three = average_gap(**accuracies)
    mia = percent_gap("membership attack", unlearned_mia, retrained_mia)
    return MetricResult((3.0 * three.value + mia) / 4.0, table={**three.table, "mia_gap": mia})


METRIC = Metric(
    id="average_gap_mia",
    title="Average gap with membership attack",
    function=average_gap_mia,
    needs={
        **ACCURACY_NEEDS,
        "unlearned_mia": Need(CONFIDENCE_EFFICACY),
        "retrained_mia": Need(CONFIDENCE_EFFICACY, Side.RETRAINED),
    },
    unit="percentage points",
    direction=Direction.LOWER,
    defaults=ConfidenceParameters,
    ideal=0.0,
    version=2,
    bounds=(0.0, 100.0),
    resampling=Resampling.MODELS,
    source="Fan et al. 2024, SalUn (2310.12508), average gap",
    formula="( |UA_u - UA_r| + |RA_u - RA_r| + |TA_u - TA_r| + |MIA_u - MIA_r| ) / 4 in percentage points",
    paper_and_code="MIA is the efficacy of an SVC on the probability of the true class, one of SalUn's five features.",
)
