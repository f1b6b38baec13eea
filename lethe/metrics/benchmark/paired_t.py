"""Whether one set of runs scores higher than another, run by run, and whether MIAU rises with forgetting."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit

from lethe.metrics.core.arrays import Float64, per_model, real_array, require_same_models
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Need, Scope
from lethe.metrics.core.result import MetricResult


@dataclass(frozen=True)
class PairedTest:
    """mean: of the differences. interval: 95 %. effect: Cohen's d_z. p_value: one-sided, H1: the mean is above 0."""

    mean: float
    interval: tuple[float, float]
    effect: float
    p_value: float


def paired_t(higher: npt.ArrayLike, lower: npt.ArrayLike) -> PairedTest:
    """Return the one-sided paired t-test of `higher` above `lower`.

    higher, lower: shape (n_runs,), at least 2, run i of one paired with run i of the other.
    Differences that are all equal have p 0, 1/2 or 1 by their sign.
    Raises InvalidMetricInput for unequal numbers or fewer than 2 runs.
    Source: the MIAU paper, table 5.
    """
    a = per_model(higher, name="values", side="higher")
    b = per_model(lower, name="values", side="lower")
    if require_same_models(higher=a, lower=b) < 2:
        raise InvalidMetricInput("a paired test needs at least 2 runs, not 1")
    difference = a - b
    mean, spread = float(difference.mean()), float(difference.std(ddof=1))
    if spread == 0.0:
        return PairedTest(mean, (mean, mean), float(np.sign(mean) * np.inf) if mean else 0.0, (1 - np.sign(mean)) / 2)
    if mean == 0.0:
        reach = float(stdtrit(difference.size - 1, 0.975)) * spread / np.sqrt(difference.size)
        return PairedTest(mean, (-reach, reach), 0.0, 0.5)
    return paired_t_of_effect(mean, mean / spread, n_runs=difference.size)


def paired_t_of_effect(mean: float, effect: float, *, n_runs: int) -> PairedTest:
    """Return the test from the mean difference and Cohen's d_z = mean / standard deviation (ddof=1), not 0."""
    reach = float(stdtrit(n_runs - 1, 0.975)) * (mean / effect) / np.sqrt(n_runs)
    p_value = float(stdtr(n_runs - 1, -effect * np.sqrt(n_runs)))
    return PairedTest(mean, (float(mean - reach), float(mean + reach)), effect, p_value)


def holm(p_values: npt.ArrayLike) -> Float64:
    """Return p-values corrected for their number by Holm's step-down rule, shape as given."""
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    result = np.empty_like(p)
    result[order] = np.minimum(stepped, 1.0)
    return result


def paired_t_of_methods(values: npt.ArrayLike) -> MetricResult:
    """Return the smallest corrected p-value over pairs of methods, with every pair in `arrays`.

    values: a metric per run, shape (n_methods, n_runs), paired by run. Entry [a, b] of `p_value` tests a above b, and
    Holm's rule corrects over all of them.
    Raises InvalidMetricInput below 2 methods or 2 runs.
    """
    rows = real_array(values, axes=("methods", "models"), name="values")
    n_methods = rows.shape[0]
    if n_methods < 2:
        raise InvalidMetricInput("a comparison needs at least 2 methods, not 1")
    pairs = [(a, b) for a in range(n_methods) for b in range(n_methods) if a != b]
    tests = [paired_t(rows[a], rows[b]) for a, b in pairs]
    corrected = holm([test.p_value for test in tests])
    p_value, difference = np.full((n_methods, n_methods), np.nan), np.zeros((n_methods, n_methods))
    for (a, b), test, p in zip(pairs, tests, corrected, strict=True):
        p_value[a, b], difference[a, b] = p, test.mean
    return MetricResult(float(corrected.min()), arrays={"p_value": p_value, "difference": difference})


PAIRED_T = Metric(
    id="paired_t",
    title="Paired t-tests",
    function=paired_t_of_methods,
    needs={"values": Need("metric_per_run")},
    unit="p (least, corrected)",
    direction=Direction.NONE,
    paired=True,
    bounds=(0.0, 1.0),
    scope=Scope.COMPARISON,
    source="the MIAU paper, section 5.1 and table 5",
    formula="t = d sqrt(n), d = mean / sd(ddof=1) of the differences; one-sided p = sf(t, n - 1)",
    paper_and_code="The paper corrects for no number of tests; Holm's rule over pairs here.",
)


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


MIAU_GRADUAL = Metric(
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
