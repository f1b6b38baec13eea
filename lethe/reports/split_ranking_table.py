"""Ranks over splits of one task: which methods are comparable, the table, and sentences on what is decided."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from string import ascii_lowercase, ascii_uppercase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.benchmark.results import BenchmarkResults, benchmark_results, higher_is_better
from lethe.benchmark.store import TUNED, UNTUNED
from lethe.metrics.benchmark.rankings import holm, paired_t
from lethe.metrics.core.arrays import Float64, Int64
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.reports.table import Column, Table, Value

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


Content = Mapping[str, Any]


def untuned_methods(content: Content) -> tuple[str, ...]:
    """Return the methods with constants to tune that were not tuned in every cell, in the order of the file."""
    names = [method["name"] for method in content["methods"]]
    return tuple(name for name in names if UNTUNED in _states(content, name))


def left_out(content: Content) -> tuple[str, ...]:
    """Return the methods that are shown and not ranked: the untuned ones, where others were tuned."""
    names = [method["name"] for method in content["methods"]]
    any_tuned = any(TUNED in _states(content, name) for name in names)
    return untuned_methods(content) if any_tuned else ()


def ranking_note(content: Content) -> str:
    """Return what a ranking's title says of the tuning, empty where all methods were tuned."""
    if out := left_out(content):
        return f" (of tuned methods; not ranked, because not tuned: {', '.join(out)})"
    return " (no method was tuned: it says nothing of the methods)" if untuned_methods(content) else ""


def _states(content: Content, name: str) -> set[str]:
    """Return the states of a method's constants over cells; results of version 0.2 were of untuned methods."""
    rows = [cell["rows"][name] for cell in content["cells"].values() if name in cell["rows"]]
    return {row.get("tuning", {}).get("state", UNTUNED) for row in rows}


MIN_SPLITS = 5  # with fewer, a ranking is no result


@dataclass(frozen=True, eq=False)
class Ranked:
    """The ranked methods of one task; `order` holds their numbers, the best first."""

    methods: list[str]
    found: SplitRanking
    order: Int64


def ranked_over_splits(results: BenchmarkResults, cells: Sequence[str], metric: str) -> Ranked | None:
    """Return the ranking of the methods that have a value in each of these cells; None of fewer than 2 of either."""
    values = results.metric(metric)[[results.cells.index(name) for name in cells]][:, results.ranked].T
    known = np.asarray(~np.isnan(values).any(axis=1))
    if len(cells) < 2 or known.sum() < 2:
        return None
    methods = [results.methods[i] for i, there in zip(results.ranked, known, strict=True) if there]
    found = rank_over_splits(values[known], higher_is_better=higher_is_better(metric))
    return Ranked(methods, found, np.argsort(mean_ranks(found), kind="stable"))


def mean_ranks(found: SplitRanking) -> Float64:
    """Return each method's mean rank, from 1. Shape: (n_methods,)."""
    return np.asarray(found.rank_probability @ np.arange(1, len(found.mean) + 1))


def probable_ranks(probability: Float64) -> tuple[int, int]:
    """Return the first and the last of the ranks that hold 90 % of the probability. Shape: (n_ranks,)."""
    total = np.cumsum(probability)
    low, high = (int(np.searchsorted(total, share - 1e-9)) + 1 for share in (0.05, 0.95))
    return low, high


def split_ranking_tables(
    content: Mapping[str, Any], results: BenchmarkResults, metric: str, *, note: str
) -> Iterator[Table]:
    """Yield for each task with two or more splits a row per ranked method, best mean rank first.

    Columns: mean, probability of the first rank, mean rank, ranks that hold 90 % of the probability, letters: two
    methods share one if all pairwise tests leave their difference open. A
    method without a value in some split is left out.
    """
    for names in same_task_cells(content):
        ranked = ranked_over_splits(results, names, metric)
        if ranked is None:
            continue
        rows = tuple(_row(ranked, i) for i in ranked.order)
        few = "" if len(names) >= MIN_SPLITS else f", fewer than {MIN_SPLITS} splits: not for citing"
        columns = (
            Column("Method"), Column(f"{metric}, mean", 3), Column("P(first)"), Column("mean rank"),
            Column("ranks, 90 %"), Column("letters"),
        )  # fmt: skip
        yield Table(f"Ranks by {metric} over {len(names)} splits ({', '.join(names)}){few}{note}", columns, rows)


def _row(ranked: Ranked, i: int) -> tuple[Value, ...]:
    found = ranked.found
    probability = found.rank_probability[i]
    low, high = probable_ranks(probability)
    mean, first, mean_rank = float(found.mean[i]), float(probability[0]), float(mean_ranks(found)[i])
    return (ranked.methods[i], mean, first, mean_rank, f"{low} to {high}", found.letters[i])


NAMES = {"f": "F", "score": "the score"}


def ranked_of(content: Mapping[str, Any], metric: str) -> Ranked:
    """Return the ranking of the results' first task. Raises ValueError where there is none."""
    results = benchmark_results(dict(content))
    compared = BenchmarkResults(**{**vars(results), "references": (*left_out(content), *results.references)})
    found = ranked_over_splits(compared, same_task_cells(content)[0], metric)
    if found is None:
        raise ValueError("these results rank nothing: one split, or one method")
    return found


def difference_sentence(content: Mapping[str, Any], metric: str) -> str:
    """Return how many pairs differ, and by which tests."""
    found = ranked_of(content, metric).found
    n_splits = len(same_task_cells(content)[0])
    n_differing = int(np.triu(found.differs, 1).sum())
    return (
        f"By {NAMES[metric]}, {n_differing} of {found.n_tests} pairs of methods differ (two-sided paired t-tests over "
        f"{n_splits} splits, Holm's correction over all {found.n_tests} tests, level {LEVEL:g})."
    )


def first_sentence(content: Mapping[str, Any], metric: str) -> str:
    """Return which method has the highest mean, and whether it differs from the others."""
    ranked = ranked_of(content, metric)
    first = int(np.argmax(ranked.found.mean))
    others = len(ranked.methods) - 1
    n_differing = int(ranked.found.differs[first].sum())
    end = "" if n_differing == others else ": which method is first is undecided"
    return f"`{ranked.methods[first]}` has the highest mean and differs from {n_differing} of the {others} others{end}."


def contrast_sentence(content: Mapping[str, Any], first: str, second: str, metric: str) -> str:
    """Return whether two methods differ: the one contrast that was declared before the runs, tested by itself."""
    ranked = ranked_of(content, metric)
    if missing := [name for name in (first, second) if name not in ranked.methods]:
        return f"The contrast that was declared, `{first}` against `{second}`, cannot be tested: no {missing[0]}."
    results, names = benchmark_results(dict(content)), same_task_cells(content)[0]
    values = results.metric(metric)[[results.cells.index(name) for name in names]]
    higher, lower = (values[:, results.methods.index(name)] for name in (first, second))
    test = paired_t(higher, lower)
    p_value = 2 * min(test.p_value, 1 - test.p_value)
    word = "undecided" if p_value >= LEVEL else f"`{first if test.mean > 0 else second}` is higher"
    return (
        f"The contrast declared before the runs, `{first}` less `{second}` by {NAMES[metric]}: {test.mean:.3f} "
        f"[{test.interval[0]:.3f}, {test.interval[1]:.3f}], p = {p_value:.3f} (two-sided paired t-test over "
        f"{len(names)} splits, level {LEVEL:g}): {word}."
    )


def agreement_sentence(first: Mapping[str, Any], second: Mapping[str, Any], metric: str) -> str:
    """Return Kendall's tau of the means of the methods that both have, without those that are 0 in either."""
    from scipy.stats import kendalltau  # noqa: PLC0415  slow to import, needed here alone

    ranked = [ranked_of(content, metric) for content in (first, second)]
    means = [dict(zip(each.methods, map(float, each.found.mean), strict=True)) for each in ranked]
    common = [name for name in means[0] if means[0][name] and means[1].get(name)]
    tau, p_value = kendalltau(*([mean[name] for name in common] for mean in means))
    decided = "" if p_value < LEVEL else ", which decides nothing"
    return (
        f"Kendall's tau of {NAMES[metric]} over the {len(common)} common methods that are 0 in neither is {tau:.2f} "
        f"(p = {p_value:.2f}){decided}."
    )
