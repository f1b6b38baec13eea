"""Whether MIAU rises with the share of the forget set that was really left out of training."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from lethe.metrics.benchmark.paired_t import holm, paired_t
from lethe.metrics.core.arrays import real_array
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Need, Scope
from lethe.metrics.core.result import MetricResult


def miau_gradual(values: npt.ArrayLike) -> MetricResult:
    """Return the smallest mean rise between neighbouring levels; above 0, MIAU rises with forgetting.

    values: MIAU per run of models retrained without a growing share of the forget set, shape (n_levels, n_runs),
    from the least forgotten to all of it; paired by run.
    arrays: `difference`, `low`, `high` (95 %), `effect` (Cohen's d_z), `p_value` (one-sided) and `p_holm`, one entry
    per neighbouring pair, shape (n_levels - 1,).
    Raises InvalidMetricInput below 2 levels or 2 runs.
    Source: the MIAU paper, section 5.1, table 5.
    """
    levels = real_array(values, axes=("levels", "models"), name="MIAU")
    if levels.shape[0] < 2:
        raise InvalidMetricInput("a gradual check needs at least 2 levels, not 1")
    tests = [paired_t(higher, lower) for lower, higher in pairwise(levels)]
    p_values = np.array([test.p_value for test in tests])
    difference = np.array([test.mean for test in tests])
    return MetricResult(
        float(difference.min()),
        table={"negative_steps": int((difference < 0.0).sum()), "steps": len(tests)},
        arrays={
            "difference": difference,
            "low": np.array([test.interval[0] for test in tests]),
            "high": np.array([test.interval[1] for test in tests]),
            "effect": np.array([test.effect for test in tests]),
            "p_value": p_values,
            "p_holm": holm(p_values),
        },
    )


METRIC = Metric(
    id="miau_gradual",
    title="Gradual unlearning check",
    function=miau_gradual,
    needs={"values": Need("metric_per_run")},
    unit="points of MIAU",
    direction=Direction.HIGHER,
    paired=True,
    scope=Scope.BENCHMARK,
    source="the MIAU paper, section 5.1 and table 5",
    formula="MIAU_25 < MIAU_50 < MIAU_75 < MIAU_full, each step by a one-sided paired t-test",
    paper_and_code=(
        "The text says that the score rises with the portion preserved; tables and figure 3 mean the portion "
        "forgotten. 6 of the 26 mean differences in table 5 are negative. Holm's correction is added here."
    ),
)
