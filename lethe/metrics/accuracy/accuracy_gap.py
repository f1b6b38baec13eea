"""How far the unlearned models' accuracy on the forget set is from the retrained models'."""

from lethe.metrics.core.registry import Direction, Metric, Resampling, both_sides
from lethe.metrics.core.run_means import gap_of_runs

METRIC = Metric(
    id="accuracy_gap",
    title="Accuracy gap",
    function=gap_of_runs,
    needs=both_sides("forget_accuracy"),
    unit="share of the forget set",
    direction=Direction.LOWER,
    ideal=0.0,
    resampling=Resampling.MODELS,
    source="Triantafillou et al. 2024 (2406.09073), question 4, figure 6",
    formula="| mean_i FA_u,i - mean_i FA_r,i |",
)
