"""How far metrics, and submissions, agree; which submissions no other beats; which forget examples are hard for all.

Pure: numbers in, tables out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from lethe.metrics.benchmark.hard_examples import epsilon_correlation, hardness
from lethe.metrics.benchmark.rankings import pareto_frontier
from lethe.metrics.core.invalid_input import InvalidMetricInput

MIN_RANKED = 3  # ranks of two submissions always agree or contradict
MAX_EXAMPLES = 15
NORMAL_QUANTILE_95 = 1.959963984540054

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Matrix:
    """Spearman's correlations, rows and columns in the order of the names; null where one of the two is constant."""

    names: Sequence[str]
    rows: Sequence[Sequence[float | None]]


@dataclass(frozen=True)
class HardExample:
    """A forget example that is hard for all submissions."""

    example: int
    epsilon: Annotated[float, Field(description="mean over submissions, nats, each cut at the largest possible")]
    share: Annotated[float, Field(description="of the largest possible")]


def rank_correlations(values: Mapping[str, Sequence[float]]) -> Matrix | None:
    """Return Spearman's correlations between metrics over submissions, of those that are known for both.

    values: by metric, a number for each submission, NaN where there is none. None below 2 metrics or 3 submissions.
    """
    columns = {name: np.asarray(column, np.float64) for name, column in values.items()}
    known = {name: column for name, column in columns.items() if np.isfinite(column).sum() >= MIN_RANKED}
    if len(known) < 2:
        return None
    names = list(known)
    rows = [[_spearman(known[a], known[b]) for b in names] for a in names]
    return Matrix(names, rows)


def _spearman(a: Float64, b: Float64) -> float | None:
    from scipy.stats import spearmanr  # noqa: PLC0415  slow to import, needed here alone

    both = np.isfinite(a) & np.isfinite(b)
    x, y = a[both], b[both]
    if x.size < MIN_RANKED or x.min() == x.max() or y.min() == y.max():
        return None
    return float(spearmanr(x, y).statistic)


def epsilon_correlations(epsilons: Mapping[str, Float64]) -> Matrix | None:
    """Return Spearman's correlations of epsilon between submissions. None where fewer than two can be compared."""
    try:
        found = epsilon_correlation(_stacked(epsilons))
    except InvalidMetricInput:
        return None
    matrix = found.arrays["correlation"]
    return Matrix(list(epsilons), [[_finite(value) for value in row] for row in matrix])


def hard_examples(epsilons: Mapping[str, Float64], *, n_models: int) -> list[HardExample]:
    """Return the forget examples that are the hardest for all submissions together, the hardest first."""
    try:
        found = hardness(_stacked(epsilons), n_models)
    except InvalidMetricInput:
        return []
    each = found.arrays["per_method"]
    greatest = float(str(found.table["largest_possible"])) / len(epsilons) or 1.0
    return [
        HardExample(int(example), float(each[example]), float(each[example]) / greatest)
        for example in found.arrays["order"][:MAX_EXAMPLES]
    ]


def _stacked(epsilons: Mapping[str, Float64]) -> Float64:
    if len({values.shape for values in epsilons.values()}) != 1:
        raise InvalidMetricInput("the submissions have no epsilons of the same examples")
    return np.stack(list(epsilons.values()))


def loss(value: float | None, *, direction: str, oracle: float | None) -> float | None:
    """Return a number that is better the lower it is; None where the metric has no better, or no aim."""
    if value is None or direction == "none":
        return None
    if direction == "towards retrained":
        return None if oracle is None else abs(value - oracle)
    return -value if direction == "higher" else value


def on_frontier(losses: Sequence[Sequence[float]], errors: Sequence[Sequence[float]]) -> list[bool]:
    """Return which submissions no other beats in all metrics by more than a standard error of the difference.

    losses, errors: a line for each submission, a column for each metric.
    """
    if not losses:
        return []
    return [bool(each) for each in pareto_frontier(losses, standard_errors=errors)]


def standard_error(low: float | None, high: float | None) -> float:
    """Return what a 95 % interval says of the noise; 0 without one."""
    return 0.0 if low is None or high is None else (high - low) / (2 * NORMAL_QUANTILE_95)


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
