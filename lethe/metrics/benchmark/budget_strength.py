"""How many steps of a growing budget a test can distinguish."""

import numpy as np
import numpy.typing as npt
from pydantic import Field

from lethe.metrics.core.arrays import real_array
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Parameters, Scope
from lethe.metrics.core.result import MetricResult


class BudgetParameters(Parameters):
    """standard_errors: a step counts if the metric falls by more than so many."""

    standard_errors: float = Field(2.0, ge=0.0)


def budget_strength(values: npt.ArrayLike, *, standard_errors: float = 2.0) -> MetricResult:
    """Return the number of adjacent budgets between which a lower-is-better metric falls clearly, an integer >= 0.

    values: the metric, shape (n_seeds, n_budgets), at least 2 seeds, paired by seed; budgets ascending, such as EU-k
    or CF-k with k = 1, 10 %, 50 %, 100 % of the weight layers. For a metric where higher is better give its negative.
    table: mean and standard error (ddof 1) of every difference, and the number of steps that rise clearly.
    Raises InvalidMetricInput for fewer than 2 seeds or 2 budgets.
    Source: Goel et al. 2022 (arXiv:2201.06640), section 4.2, speak of gradual improvement and give no formula; the
    count is Lethe's.
    """
    table = real_array(values, axes=("seeds", "budgets"), name="values")
    n_seeds, n_budgets = table.shape
    if n_seeds < 2 or n_budgets < 2:
        raise InvalidMetricInput(f"at least 2 seeds and 2 budgets are needed, not {n_seeds} and {n_budgets}")
    falls = -np.diff(table, axis=1)
    means, errors = falls.mean(axis=0), falls.std(axis=0, ddof=1) / np.sqrt(n_seeds)
    clear, reversed_steps = means > standard_errors * errors, means < -standard_errors * errors
    return MetricResult(
        float(clear.sum()),
        table={
            "falls": means.tolist(),
            "standard_errors": errors.tolist(),
            "clear_rises": int(reversed_steps.sum()),
        },
    )


METRIC = Metric(
    id="budget_strength",
    title="Strength of a test over budgets",
    function=budget_strength,
    needs={},
    unit="steps",
    direction=Direction.HIGHER,
    defaults=BudgetParameters,
    scope=Scope.BENCHMARK,
    source="Goel et al. 2022 (2201.06640), section 4.2",
    formula="#{j : mean_s (v_sj - v_s,j+1) > 2 se}",
    paper_and_code="The paper has no formula for gradual improvement; the count of clear steps is Lethe's.",
)
