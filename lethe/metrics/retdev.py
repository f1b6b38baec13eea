"""The sum of the three deviations of accuracy from the retrained models'."""

import numpy.typing as npt

from lethe.metrics.registry import Direction, Metric, Resampling
from lethe.metrics.result import MetricResult
from lethe.metrics.retention import ACCURACY_NEEDS, retention_ratios


def retdev(**accuracies: npt.ArrayLike) -> MetricResult:
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


METRIC = Metric(
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
