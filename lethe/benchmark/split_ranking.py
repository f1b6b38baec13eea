"""Ranks of methods over splits of one task, with what the choice of splits leaves open."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from string import ascii_lowercase, ascii_uppercase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.metrics.benchmark.rankings import holm, paired_t
from lethe.metrics.core.arrays import Float64, Int64
from lethe.metrics.core.invalid_input import InvalidMetricInput

RESAMPLES = 10_000
LEVEL = 0.05


@dataclass(frozen=True, eq=False)
class SplitRanking:
    """mean [methods], rank_probability [methods, ranks], the best rank first, p_value [methods, methods], letters.

    rank_probability: share of bootstrap samples of splits in which the mean has that rank; equal means share at random.
    p_value: of the difference of two methods; one family of all pairs, each by the two-sided paired t-test over splits,
    corrected by Holm. letters: two methods share one exactly if they do not differ at level 0.05.
    """

    mean: Float64
    rank_probability: Float64
    p_value: Float64
    letters: tuple[str, ...]

    @property
    def differs(self) -> NDArray[np.bool_]:
        """Which pairs differ at level 0.05 [methods, methods]."""
        return np.asarray(self.p_value < LEVEL)

    @property
    def n_tests(self) -> int:
        return len(self.mean) * (len(self.mean) - 1) // 2


def rank_over_splits(values: Float64, *, higher_is_better: bool) -> SplitRanking:
    """Return the ranking of methods. values: shape (n_methods, n_splits), at least 2 of each, no NaN.

    Raises InvalidMetricInput for other shapes or NaN.
    """
    values = np.asarray(values, np.float64)
    if values.ndim != 2 or min(values.shape) < 2 or np.isnan(values).any():
        raise InvalidMetricInput(f"a ranking over splits takes 2 methods, 2 splits and no NaN, not {values.shape}")
    signed = values if higher_is_better else -values
    n_methods, n_splits = values.shape
    rng = np.random.default_rng(0)
    chosen = rng.integers(n_splits, size=(RESAMPLES, n_splits))
    means = signed[:, chosen].mean(axis=2)  # [methods, resamples]
    order = np.lexsort((rng.random(means.shape), -means), axis=0)
    ranks = np.argsort(order, axis=0)
    probability = np.stack([(ranks == rank).mean(axis=1) for rank in range(n_methods)], axis=1)
    p_value = pairwise_p_values(signed)
    best_first = np.argsort(-signed.mean(axis=1), kind="stable")
    return SplitRanking(values.mean(axis=1), probability, p_value, significance_letters(p_value < LEVEL, best_first))


def pairwise_p_values(values: Float64) -> Float64:
    """Return the corrected p-value of each pair's difference, symmetric, 1 on the diagonal.

    values: shape (n_methods, n_splits), paired by split. Two-sided paired t-tests; Holm's rule over all n (n - 1) / 2.
    """
    pairs = list(combinations(range(len(values)), 2))
    above = np.array([paired_t(values[a], values[b]).p_value for a, b in pairs])
    found = np.ones((len(values), len(values)))
    for (a, b), p_value in zip(pairs, holm(2 * np.minimum(above, 1 - above)), strict=True):
        found[a, b] = found[b, a] = p_value
    return found


def significance_letters(differs: NDArray[np.bool_], best_first: Int64) -> tuple[str, ...]:
    """Return letters such that two methods share one exactly if they do not differ.

    differs: symmetric [methods, methods]. best_first: the methods' numbers; the first has an `a`.
    Source: Piepho 2004, an algorithm for a letter-based representation of all-pairwise comparisons (insert and absorb).
    """
    columns = [frozenset(range(len(differs)))]
    for a, b in combinations(range(len(differs)), 2):
        if differs[a, b]:
            split = [
                part for column in columns for part in ((column - {a}, column - {b}) if {a, b} <= column else (column,))
            ]
            columns = [each for each in dict.fromkeys(split) if not any(each < other for other in split)]
    place = {int(method): rank for rank, method in enumerate(best_first)}
    columns.sort(key=lambda column: sorted(place[method] for method in column))
    names = [_letter(number) for number in range(len(columns))]
    return tuple(
        "".join(name for name, column in zip(names, columns, strict=True) if method in column)
        for method in range(len(differs))
    )


def _letter(number: int) -> str:
    letters = ascii_lowercase + ascii_uppercase
    return letters[number] if number < len(letters) else f"({number + 1})"


def same_task_cells(content: Mapping[str, Any]) -> list[list[str]]:
    """Return the names of cells that differ in the split's seed alone, in the order of the results."""
    tasks: dict[str, list[str]] = {}
    for name, cell in content["cells"].items():
        settings = cell["settings"]
        splits = {key: value for key, value in settings["splits"].items() if key != "seed"}
        tasks.setdefault(repr({**settings, "splits": splits}), []).append(name)
    return list(tasks.values())
