"""What results over splits say of the order of methods, as sentences: pages are made of them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from lethe.benchmark.benchmark_results import BenchmarkResults
from lethe.benchmark.results import benchmark_results
from lethe.benchmark.split_ranking import LEVEL, same_task_cells
from lethe.metrics.benchmark.paired_t import paired_t
from lethe.reports.comparable_methods import left_out
from lethe.reports.split_ranking_table import Ranked, ranked_over_splits

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
    means = [_means(content, metric) for content in (first, second)]
    common = [name for name in means[0] if means[0][name] and means[1].get(name)]
    tau, p_value = kendalltau(*([mean[name] for name in common] for mean in means))
    decided = "" if p_value < LEVEL else ", which decides nothing"
    return (
        f"Kendall's tau of {NAMES[metric]} over the {len(common)} common methods that are 0 in neither is {tau:.2f} "
        f"(p = {p_value:.2f}){decided}."
    )


def _means(content: Mapping[str, Any], metric: str) -> dict[str, float]:
    ranked = ranked_of(content, metric)
    return dict(zip(ranked.methods, map(float, ranked.found.mean), strict=True))
