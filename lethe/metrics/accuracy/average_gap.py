"""The mean of the gaps in forget, retain and test accuracy, without and with a membership attack."""

from dataclasses import replace

from lethe.metrics.attacks.svc_efficacy import CONFIDENCE_EFFICACY, ConfidenceParameters
from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.registry import Direction, Metric, Need, Resampling
from lethe.metrics.core.result import MetricResult


def average_gap(
    *,
    unlearned_forget: Float64,
    unlearned_retain: Float64,
    unlearned_test: Float64,
    retrained_forget: Float64,
    retrained_retain: Float64,
    retrained_test: Float64,
) -> MetricResult:
    """Return the mean of |difference of the mean accuracies| over the three sets, in percentage points; 0 is ideal.

    Every argument: accuracies per model, shape (n_models,); the sides may have different numbers of models.
    table: the three gaps.
    Source: Fan et al. 2024 (SalUn), the average gap of their tables.
    """
    pairs = {
        "forget": (unlearned_forget, retrained_forget),
        "retain": (unlearned_retain, retrained_retain),
        "test": (unlearned_test, retrained_test),
    }
    gaps = {name: percent_gap(*pair) for name, pair in pairs.items()}
    return MetricResult(sum(gaps.values()) / len(gaps), table={f"{name}_gap": gap for name, gap in gaps.items()})


def percent_gap(unlearned: Float64, retrained: Float64) -> float:
    """Return |difference of the means| in percentage points."""
    return 100.0 * abs(float(unlearned.mean() - retrained.mean()))


ACCURACY_NEEDS = {
    f"{side}_{part}": Need(f"{part}_accuracy", side)
    for side in (Side.UNLEARNED, Side.RETRAINED)
    for part in ("forget", "retain", "test")
}

AVERAGE_GAP = Metric(
    id="average_gap",
    title="Average gap",
    function=average_gap,
    needs=ACCURACY_NEEDS,
    unit="percentage points",
    direction=Direction.LOWER,
    ideal=0.0,
    bounds=(0.0, 100.0),
    resampling=Resampling.MODELS,
    source="Fan et al. 2024, SalUn (2310.12508), average gap; cited by Triantafillou et al. 2024, appendix A.5",
    formula="( |UA_u - UA_r| + |RA_u - RA_r| + |TA_u - TA_r| ) / 3 in percentage points, UA = 1 - FA, means over runs",
    paper_and_code="SalUn averages four gaps, with the efficacy of an SVC attack: that is average_gap_mia.",
)


def average_gap_mia(*, unlearned_mia: Float64, retrained_mia: Float64, **accuracies: Float64) -> MetricResult:
    """Return the mean of four gaps in percentage points; 0 is ideal.

    unlearned_mia, retrained_mia: efficacy of the attack per model, shape (n_models,). accuracies: the arguments of
    `average_gap`.
    Source: Fan et al. 2024 (SalUn), the average gap of their tables.
    """
    three = average_gap(**accuracies)
    mia = percent_gap(unlearned_mia, retrained_mia)
    return MetricResult((3.0 * three.value + mia) / 4.0, table={**three.table, "mia_gap": mia})


AVERAGE_GAP_MIA = replace(
    AVERAGE_GAP,
    id="average_gap_mia",
    title="Average gap with membership attack",
    function=average_gap_mia,
    needs={
        **ACCURACY_NEEDS,
        "unlearned_mia": Need(CONFIDENCE_EFFICACY),
        "retrained_mia": Need(CONFIDENCE_EFFICACY, Side.RETRAINED),
    },
    defaults=ConfidenceParameters,
    version=2,
    source="Fan et al. 2024, SalUn (2310.12508), average gap",
    formula="( |UA_u - UA_r| + |RA_u - RA_r| + |TA_u - TA_r| + |MIA_u - MIA_r| ) / 4 in percentage points",
    paper_and_code="MIA is the efficacy of an SVC on the probability of the true class, one of SalUn's five features.",
)
