"""Accuracies of the unlearned models relative to those of the retrained ones."""

from collections.abc import Mapping
from typing import Literal

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Need, Parameters, Resampling
from lethe.metrics.core.result import MetricResult

Part = Literal["retain", "forget", "test"]


class RetentionParameters(Parameters):
    """part: whose ratio is the value; the table has all three."""

    part: Part = "retain"


def retention(*, part: Part = "retain", **accuracies: Float64) -> MetricResult:
    """Return mean unlearned accuracy / mean retrained accuracy of one set, >= 0; 1 is ideal, it may be above.

    accuracies: retain, forget, test, retrained_retain, retrained_forget, retrained_test, each of shape (n_models,) in
    [0, 1]. table: retain_retention (RR), forget_retention (FR), test_retention (TR).
    Raises InvalidMetricInput for retrained models that are never right.
    Source: Cadet et al. 2024 (arXiv:2410.01276), equations 2 and 3.
    """
    ratios = retention_ratios(accuracies)
    return MetricResult(ratios[part], table={f"{name}_retention": ratio for name, ratio in ratios.items()})


def retention_ratios(accuracies: Mapping[str, Float64]) -> dict[str, float]:
    """Return the ratio of the mean accuracies by set: retain, forget, test; the arrays as for `retention`."""
    return {part: _ratio(accuracies[part], accuracies[f"retrained_{part}"], part) for part in PARTS}


def _ratio(unlearned: Float64, retrained: Float64, part: str) -> float:
    if retrained.mean() == 0.0:
        raise InvalidMetricInput(
            f"the retrained models' mean {part} accuracy is 0, so no ratio to it exists", side="retrained"
        )
    return float(unlearned.mean() / retrained.mean())


PARTS: tuple[Part, ...] = ("retain", "forget", "test")
ACCURACY_NEEDS = {part: Need(f"{part}_accuracy") for part in PARTS} | {
    f"retrained_{part}": Need(f"{part}_accuracy", Side.RETRAINED) for part in PARTS
}

RETENTION = Metric(
    id="retention",
    title="Retention of accuracy (RR, FR, TR)",
    function=retention,
    needs=ACCURACY_NEEDS,
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
    Source: Cadet et al. 2024 (arXiv:2410.01276), equations 4 to 7.
    """
    ratios = retention_ratios(accuracies)
    deviations = {part: abs(1.0 - ratio) for part, ratio in ratios.items()}
    table = {f"{part}_retention": ratio for part, ratio in ratios.items()}
    table |= {f"{part}_deviation": deviation for part, deviation in deviations.items()}
    return MetricResult(sum(deviations.values()), table=table)


RETDEV = Metric(
    id="retdev",
    title="Retention deviation (RetDev)",
    function=retdev,
    needs=ACCURACY_NEEDS,
    unit="sum of relative differences",
    direction=Direction.LOWER,
    ideal=0.0,
    resampling=Resampling.MODELS,
    bounds=(0.0, float("inf")),
    source="Cadet et al. 2024 (2410.01276), equations 4 to 7",
    formula="|1 - RR| + |1 - FR| + |1 - TR|",
)
