"""How far accuracies of the unlearned models are from those of the retrained ones."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from lethe.metrics.attacks.classifier_attacks import CONFIDENCE_EFFICACY, ConfidenceParameters
from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Need, Parameters, Resampling, both_sides
from lethe.metrics.core.result import MetricResult, gap_of_runs

ACCURACY_GAP = Metric(
    id="accuracy_gap",
    title="Accuracy gap",
    function=gap_of_runs,
    needs=both_sides("forget_accuracy"),
    unit="share of the forget set",
    ideal=0.0,
    resampling=Resampling.MODELS,
    source="Triantafillou et al. 2024 (2406.09073), question 4, figure 6",
    formula="| mean_i FA_u,i - mean_i FA_r,i |",
)


def sape(unlearned: Float64, retrained: Float64) -> MetricResult:
    """Return the error between the mean forget accuracies, in percent, within [0, 100]; 0 is ideal.

    unlearned, retrained: forget accuracy of every model, shape (n_models,), in [0, 1]; the numbers may differ.
    Source: Cadet et al. 2024 (arXiv:2410.01276), program, after Zhang et al. 2023.
    """
    return MetricResult(float(symmetric_percentage_error(unlearned.mean(), retrained.mean())))


def symmetric_percentage_error(first: npt.ArrayLike, second: npt.ArrayLike) -> Float64:
    """Return 100 |a - b| / (|a| + |b|), broadcast shape, float64; 0 where both are 0."""
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    total = np.abs(b) + np.abs(a)
    return np.asarray(np.abs(b - a) / np.where(total == 0.0, 1.0, total) * 100)


SAPE = Metric(
    title="Symmetric absolute percentage error (SAPE)",
    function=sape,
    needs=both_sides("forget_accuracy"),
    unit="percent",
    ideal=0.0,
    resampling=Resampling.MODELS,
    bounds=(0.0, 100.0),
    source="Cadet et al. 2024 (2410.01276), program; Zhang et al. 2023",
    formula="100 |a - b| / (|a| + |b|)",
    paper_and_code="The program divides by zero when both are 0; here the error is 0.",
)


def average_gap(**accuracies: Float64) -> MetricResult:
    """Return the mean of |difference of the mean accuracies| over the three sets, in percentage points; 0 is ideal.

    accuracies: `unlearned_forget`, `retrained_forget` and the same of retain and test, per model, shape (n_models,);
    the sides may have different numbers of models. table: the three gaps.
    """
    sets = ("forget", "retain", "test")
    gaps = {name: percent_gap(accuracies[f"unlearned_{name}"], accuracies[f"retrained_{name}"]) for name in sets}
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
    title="Average gap",
    function=average_gap,
    needs=ACCURACY_NEEDS,
    unit="percentage points",
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


Part = Literal["retain", "forget", "test"]


class RetentionParameters(Parameters):
    """part: whose ratio is the value; the table has all three."""

    part: Part = "retain"


def retention(*, part: Part = "retain", **accuracies: Float64) -> MetricResult:
    """Return mean unlearned accuracy / mean retrained accuracy of one set, >= 0; 1 is ideal, it may be above.

    accuracies: retain, forget, test, retrained_retain, retrained_forget, retrained_test, each of shape (n_models,) in
    [0, 1]. table: retain_retention (RR), forget_retention (FR), test_retention (TR).
    Raises InvalidMetricInput for retrained models that are never right.
    """
    ratios = retention_ratios(accuracies)
    return MetricResult(ratios[part], table={f"{name}_retention": ratio for name, ratio in ratios.items()})


def retention_ratios(accuracies: Mapping[str, Float64]) -> dict[str, float]:
    """Return the ratio of the mean accuracies by set: retain, forget, test; the arrays as for `retention`."""
    means = {name: values.mean() for name, values in accuracies.items()}
    for part in PARTS:
        if means[f"retrained_{part}"] == 0.0:
            raise InvalidMetricInput(
                f"the retrained models' mean {part} accuracy is 0, so no ratio to it exists", side="retrained"
            )
    return {part: float(means[part] / means[f"retrained_{part}"]) for part in PARTS}


PARTS: tuple[Part, ...] = ("retain", "forget", "test")
RETENTION_NEEDS = {part: Need(f"{part}_accuracy") for part in PARTS} | {
    f"retrained_{part}": Need(f"{part}_accuracy", Side.RETRAINED) for part in PARTS
}

RETENTION = Metric(
    title="Retention of accuracy (RR, FR, TR)",
    function=retention,
    needs=RETENTION_NEEDS,
    unit="ratio",
    direction=Direction.TOWARDS_RETRAINED,
    ideal=1.0,
    defaults=RetentionParameters,
    resampling=Resampling.MODELS,
    bounds=(0.0, float("inf")),
    source="Cadet et al. 2024 (2410.01276), equations 2 and 3",
    formula="RR = RA_u / RA_r, FR = FA_u / FA_r, TR = TA_u / TA_r, of accuracies averaged over models",
)


def retdev(**accuracies: Float64) -> MetricResult:
    """Return |1 - RR| + |1 - FR| + |1 - TR|, >= 0; 0 is ideal.

    accuracies: as for `retention`. table: the three ratios and the three deviations.
    Raises InvalidMetricInput as `retention` does.
    """
    ratios = retention_ratios(accuracies)
    deviations = {part: abs(1.0 - ratio) for part, ratio in ratios.items()}
    table = {f"{part}_retention": ratio for part, ratio in ratios.items()}
    table |= {f"{part}_deviation": deviation for part, deviation in deviations.items()}
    return MetricResult(sum(deviations.values()), table=table)


RETDEV = Metric(
    title="Retention deviation (RetDev)",
    function=retdev,
    needs=RETENTION_NEEDS,
    unit="sum of relative differences",
    ideal=0.0,
    resampling=Resampling.MODELS,
    bounds=(0.0, float("inf")),
    source="Cadet et al. 2024 (2410.01276), equations 4 to 7",
    formula="|1 - RR| + |1 - FR| + |1 - TR|",
)
