"""Ranks of methods over splits of one task, with what the choice of splits leaves open."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lethe.metrics.benchmark.paired_t import paired_t_of_methods
from lethe.metrics.core.arrays import Float64, Int64
from lethe.metrics.core.invalid_input import InvalidMetricInput

RESAMPLES = 10_000
LEVEL = 0.05


@dataclass(frozen=True, eq=False)
class SplitRanking:
    """mean, rank_probability [methods, ranks] and group [methods]; the first rank and the first group are the best.

    rank_probability: share of bootstrap samples of splits in which the mean has that rank; equal means share at random.
    group: a method begins a new one where it is below the first of the group before it (paired t-test over splits,
    corrected by Holm over all pairs, level 0.05).
    """

    mean: Float64
    rank_probability: Float64
    group: Int64


def rank_over_splits(values: Float64, *, higher_is_better: bool, seed: int = 0) -> SplitRanking:
    """Return the ranking of methods. values: shape (n_methods, n_splits), at least 2 of each, no NaN.

    Raises InvalidMetricInput for other shapes or NaN.
    """
    values = np.asarray(values, np.float64)
    if values.ndim != 2 or min(values.shape) < 2 or np.isnan(values).any():
        raise InvalidMetricInput(f"a ranking over splits takes 2 methods, 2 splits and no NaN, not {values.shape}")
    signed = values if higher_is_better else -values
    n_methods, n_splits = values.shape
    rng = np.random.default_rng(seed)
    chosen = rng.integers(n_splits, size=(RESAMPLES, n_splits))
    means = signed[:, chosen].mean(axis=2)  # [methods, resamples]
    order = np.lexsort((rng.random(means.shape), -means), axis=0)
    ranks = np.argsort(order, axis=0)
    probability = np.stack([(ranks == rank).mean(axis=1) for rank in range(n_methods)], axis=1)
    return SplitRanking(values.mean(axis=1), probability, _groups(signed))


def _groups(signed: Float64) -> Int64:
    p_value = np.asarray(paired_t_of_methods(signed).arrays["p_value"])
    groups = np.zeros(len(signed), dtype=np.int64)
    order = np.argsort(-signed.mean(axis=1), kind="stable")
    leader, group = order[0], 1
    for method in order:
        if method != leader and p_value[leader, method] < LEVEL:
            leader, group = method, group + 1
        groups[method] = group
    return groups


def same_task_cells(content: Mapping[str, Any]) -> list[list[str]]:
    """Return the names of cells that differ in the split's seed alone, in the order of the results."""
    tasks: dict[str, list[str]] = {}
    for name, cell in content["cells"].items():
        settings = cell["settings"]
        splits = {key: value for key, value in settings["splits"].items() if key != "seed"}
        tasks.setdefault(repr({**settings, "splits": splits}), []).append(name)
    return list(tasks.values())
