"""What results over splits say of the order of methods, as sentences: pages quote them, and a test compares."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from lethe.benchmark.benchmark_results import BenchmarkResults
from lethe.benchmark.results import benchmark_results
from lethe.benchmark.split_ranking import LEVEL, same_task_cells
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


def page_sentences(content: Mapping[str, Any], metric: str = "f") -> Sequence[str]:
    """Return the sentences that a page of these results quotes."""
    return difference_sentence(content, metric), first_sentence(content, metric)


def _means(content: Mapping[str, Any], metric: str) -> dict[str, float]:
    ranked = ranked_of(content, metric)
    return dict(zip(ranked.methods, map(float, ranked.found.mean), strict=True))
