"""The strongest of all intervals where no value is in both samples: half the columns and one pass for both roles.

In the merged order the samples then alternate in runs. An interval that starts or ends with values of Y can drop them
and wins both ratios of `exact`, unless no Y would be left. So the strongest rule is one of three kinds:

- from the start of a run of X to the end of a later one; Y lies between, as the discard rule demands;
- all of X but its smallest or its largest value, where the first kind would hold every X and be discarded;
- one run of X, and the nearest value of Y beside it.

The last two are a handful of candidates, looked at first; they also give Dinkelbach's method a high level to start
from. For the first, a pass keeps the running minimum over starts twice: with the first run, and without it for the end
that may not be paired with it.
"""

from typing import NamedTuple

import numpy as np

from lethe.metrics.core.compiled import jitted
from lethe.metrics.scoring.arrays import Bytes, Float64


class RunCounts(NamedTuple):
    """Counts of x and y before and up to the end of each run of X; shape (n_runs,) each."""

    start_x: Float64
    start_y: Float64
    end_x: Float64
    end_y: Float64


@jitted
def merge(u: Float64, r: Float64, is_u: Bytes) -> bool:
    """Write of every value in merged order whether it is u's; u, r: sorted, shape (n,); is_u: output, shape (2 n,).

    Returns whether some value is in both samples; the output then means nothing. From both ends at once, since a
    merge is a chain of steps that wait for each other; without a branch on the values, which no processor could
    guess; and without a check for an end, for n steps cannot exhaust a sample of n.
    """
    n = u.shape[0]
    i = 0
    j = 0
    last_u = n - 1
    last_r = n - 1
    shared = False
    for t in range(n):
        shared |= u[i] == r[j]
        u_first = u[i] < r[j]
        is_u[t] = u_first
        i += u_first
        j = t + 1 - i
        shared |= u[last_u] == r[last_r]
        u_last = u[last_u] > r[last_r]
        is_u[2 * n - 1 - t] = u_last
        last_u -= u_last
        last_r = 2 * n - 3 - t - last_u
    return bool(shared)


@jitted
def fill_boundaries(is_u: Bytes, u_before: Float64, r_before: Float64) -> int:
    """Write how many values of each side lie before every run and, last, in all; return how many were written.

    is_u: shape (2 n,), as `merge` writes it. u_before, r_before: outputs, shape (2 n + 1,).
    """
    u_before[0] = 0.0
    r_before[0] = 0.0
    count = 1
    n_u = int(is_u[0])
    for t in range(1, is_u.shape[0]):
        u_before[count] = n_u
        r_before[count] = t - n_u
        count += is_u[t] != is_u[t - 1]
        n_u += int(is_u[t])
    u_before[count] = n_u
    r_before[count] = is_u.shape[0] - n_u
    return count + 1


@jitted
def multiplicity(values: Float64, k: int, step: int) -> int:
    """Return how many values from index k on in steps of 1 or -1 equal the k-th."""
    end = k
    while 0 <= end < values.shape[0] and values[end] == values[k]:
        end += step
    return abs(end - k)


@jitted
def larger_ratio(x: float, y: float, n: int, delta: float) -> float:
    """Return the larger of the two ratios of a rule with x and y models of each side inside; 1 <= y, x <= n - 1."""
    return max((x - delta * n) / y, ((1.0 - delta) * n - y) / (n - x))


@jitted
def level_of_single_runs(runs: RunCounts, y: Float64, n: int, delta: float, level: float) -> float:
    """Return the largest ratio above `level` of one run of X with the nearest value of Y; else `level`."""
    for k in range(runs.start_x.shape[0]):
        x = runs.end_x[k] - runs.start_x[k]
        if x >= n or larger_ratio(x, 1.0, n, delta) <= level:
            continue
        before = int(runs.start_y[k])
        if before > 0:
            level = max(level, larger_ratio(x, float(multiplicity(y, before - 1, -1)), n, delta))
        if before < n:
            level = max(level, larger_ratio(x, float(multiplicity(y, before, 1)), n, delta))
    return level


@jitted
def largest_forms(runs: RunCounts, level: float) -> tuple[float, float]:
    """Return the largest x - level * y and level * x - y from the start of a run to the end of a later one.

    The pair of the first and the last run is left out: it holds every x.
    """
    last = runs.end_x.shape[0] - 1
    lowest_first = runs.start_x[0] - level * runs.start_y[0]
    lowest_second = level * runs.start_x[0] - runs.start_y[0]
    inner_first = np.inf
    inner_second = np.inf
    first = -np.inf
    second = -np.inf
    for k in range(1, last):
        first = max(first, runs.end_x[k] - level * runs.end_y[k] - lowest_first)
        second = max(second, level * runs.end_x[k] - runs.end_y[k] - lowest_second)
        form_first = runs.start_x[k] - level * runs.start_y[k]
        form_second = level * runs.start_x[k] - runs.start_y[k]
        inner_first = min(inner_first, form_first)
        inner_second = min(inner_second, form_second)
        lowest_first = min(lowest_first, form_first)
        lowest_second = min(lowest_second, form_second)
    first = max(first, runs.end_x[last] - level * runs.end_y[last] - inner_first)
    second = max(second, level * runs.end_x[last] - runs.end_y[last] - inner_second)
    return first, second


@jitted
def pair_of_form(runs: RunCounts, weight_x: float, weight_y: float, value: float) -> tuple[float, float]:
    """Return x and y of the pair whose weight_x * x - weight_y * y is `value`, a maximum that `largest_forms` found."""
    last = runs.end_x.shape[0] - 1
    lowest = weight_x * runs.start_x[0] - weight_y * runs.start_y[0]
    start = 0
    end = 1
    while end < last and weight_x * runs.end_x[end] - weight_y * runs.end_y[end] - lowest != value:
        lowest = min(lowest, weight_x * runs.start_x[end] - weight_y * runs.start_y[end])
        end += 1
    if end < last:
        while weight_x * runs.start_x[start] - weight_y * runs.start_y[start] != lowest:
            start += 1
    else:
        start = 1
        form = weight_x * runs.end_x[last] - weight_y * runs.end_y[last]
        while form - (weight_x * runs.start_x[start] - weight_y * runs.start_y[start]) != value:
            start += 1
    return runs.end_x[end] - runs.start_x[start], runs.end_y[end] - runs.start_y[start]


@jitted
def level_of_pairs(runs: RunCounts, n: int, delta: float, level: float) -> float:
    """Return the largest ratio above `level` from the start of a run of X to the end of a later one; else `level`."""
    while True:
        first, second = largest_forms(runs, level)
        better = level
        if first - delta * n > 0.0:
            x, y = pair_of_form(runs, 1.0, level, first)
            better = max(better, larger_ratio(x, y, n, delta))
        if better == level and second + (1.0 - delta - level) * n > 0.0:
            x, y = pair_of_form(runs, level, 1.0, second)
            better = max(better, larger_ratio(x, y, n, delta))
        if better == level:
            return level
        level = better


@jitted
def level_of_role(x: Float64, y: Float64, runs: RunCounts, delta: float, level: float) -> float:
    """Return the largest ratio above `level` of any interval that is called X; else `level`.

    x, y: sorted, shape (n,), without a common value and not perfectly separated.
    """
    n = x.shape[0]
    n_runs = runs.start_x.shape[0]
    level = level_of_single_runs(runs, y, n, delta, level)
    if n_runs > 1:
        dropped = min(multiplicity(x, 0, 1), multiplicity(x, n - 1, -1))
        level = max(level, larger_ratio(float(n - dropped), runs.end_y[n_runs - 1] - runs.start_y[0], n, delta))
    if n_runs > 2:
        level = level_of_pairs(runs, n, delta, level)
    return level


@jitted
def strongest_of_runs(u: Float64, r: Float64, delta: float, is_u: Bytes, before: Float64) -> float:
    """Return the largest ratio of any rule on one example, at least 1; 0 if some value is in both samples.

    u, r: sorted, shape (n,), not perfectly separated. is_u, before: workspaces of shape (2 n,) and (2, 2 n + 1).
    """
    if merge(u, r, is_u):
        return 0.0
    count = fill_boundaries(is_u, before[0], before[1])
    u_before = before[0, :count]
    r_before = before[1, :count]
    of_u = 1 - int(is_u[0])  # the first run of u
    of_r = 1 - of_u
    u_runs = RunCounts(u_before[of_u:-1:2], r_before[of_u:-1:2], u_before[of_u + 1 :: 2], r_before[of_u + 1 :: 2])
    r_runs = RunCounts(r_before[of_r:-1:2], u_before[of_r:-1:2], r_before[of_r + 1 :: 2], u_before[of_r + 1 :: 2])
    level = level_of_role(u, r, u_runs, delta, 1.0)
    return level_of_role(r, u, r_runs, delta, level)
