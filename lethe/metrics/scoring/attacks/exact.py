"""The strongest of all thresholds and all intervals, without a grid, in a few linear passes.

A rule calls every value inside an interval of the line X and every other value Y, where X is one side and Y the
other; both assignments are tried, and a threshold is an interval that reaches the end of the line. With x and y the
models of each side inside, and N models a side, the rule has FNR = (N - x)/N and FPR = y/N, and its epsilon is the
logarithm of the larger of two ratios:

    (x - delta N) / y        and        ((1 - delta) N - y) / (N - x).

The discard rule demands y >= 1 and x <= N - 1. Given a value L, a ratio exceeds L exactly where a linear form in
(x, y) is positive, and the interval that maximises a linear form is found in one pass that keeps a running minimum of
the form's prefix. Dinkelbach's method repeats: take the better ratio found as the new L, until none is better.

Among intervals that hold the same values of Y, the one with most X wins both ratios, so a pass visits distinct values
of Y only. The demand x <= N - 1 means that the smallest or the largest value of X stays outside: two passes, one for
each. Only the order of the values matters, so any increasing map of the statistic leaves epsilon as it is.

Source of the rates, the discard rule and epsilon: Triantafillou et al. 2024, algorithm 2. Method: Dinkelbach 1967.
"""

from typing import NamedTuple

import numpy as np

from lethe.metrics.core.compiled import jitted
from lethe.metrics.scoring.arrays import Float64, Int64
from lethe.metrics.scoring.attacks.alternating_runs import strongest_of_runs


class Columns(NamedTuple):
    """Counts of x and y before every possible start of an interval and up to every end; shape (n_columns,) each.

    An interval may run from any start to any end of the same or a later column.
    """

    start_x: Float64
    start_y: Float64
    end_x: Float64
    end_y: Float64


@jitted
def separated(x: Float64, y: Float64) -> bool:
    """Return whether no value of the sorted sample y lies between the least and the largest of the sorted x."""
    below = np.searchsorted(y, x[0])
    return bool(below == y.shape[0] or y[below] > x[-1])


@jitted
def fill_ranks(x: Float64, y: Float64, ranks: Int64) -> None:
    """Write how many of the other side are less than each value; x, y: sorted, shape (n_models,).

    ranks: output, shape (2, n_models): row 0 for every y among x, row 1 for every x among y. One merge without a
    branch on the values, which no processor could guess, and without a second one for the other row.
    """
    n = x.shape[0]
    i = 0
    j = 0
    while i < n and j < n:
        x_first = int(x[i] < y[j])
        ranks[0, j] = i
        ranks[1, i] = j
        i += x_first
        j += 1 - x_first
    ranks[0, j:] = n
    ranks[1, i:] = n
    for k in range(n):  # so far a tie counts as less
        while ranks[1, k] > 0 and y[ranks[1, k] - 1] == x[k]:
            ranks[1, k] -= 1


@jitted
def fill_blocks(x: Float64, y: Float64, ranks: Int64, blocks: Float64) -> tuple[int, int, int]:
    """Describe the widest interval around every distinct value of y by counts; return how many, and two limits.

    x, y: sorted, shape (n_models,). ranks: how many of x are less than each y.
    blocks: output, shape (6, n_models), a column per distinct value of y:
    rows 0, 1: x and y before the interval that starts at this value; rows 2, 3: x and y up to its end;
    row 4: row 0 with the smallest value of x left outside; row 5: row 2 with the largest value of x left outside.
    Returns (count, first column whose value exceeds min x, one past the last column whose value is below max x).
    """
    n = x.shape[0]
    n_smallest = 1
    while n_smallest < n and x[n_smallest] == x[0]:
        n_smallest += 1
    n_without_largest = n - 1
    while n_without_largest > 0 and x[n_without_largest - 1] == x[n - 1]:
        n_without_largest -= 1
    count = 0
    first = 0
    beyond = 0
    j = 0
    x_before = 0
    while j < n:
        value = y[j]
        y_before = j
        i = ranks[j]
        while j < n and y[j] == value:
            j += 1
        if count > 0:
            blocks[2, count - 1] = i
            blocks[5, count - 1] = min(i, n_without_largest)
        blocks[0, count] = x_before
        blocks[1, count] = y_before
        blocks[3, count] = j
        blocks[4, count] = max(x_before, n_smallest)
        if value <= x[0]:
            first = count + 1
        if value < x[n - 1]:
            beyond = count + 1
        count += 1
        while i < n and x[i] == value:
            i += 1
        x_before = i
    blocks[2, count - 1] = n
    blocks[5, count - 1] = n_without_largest
    return count, first, beyond


@jitted
def largest_forms(columns: Columns, level: float) -> tuple[float, float]:
    """Return the largest x - level * y and the largest level * x - y over the intervals of the columns.

    Running minima and maxima alone: to remember where they were reached would put an unpredictable branch or a longer
    chain of dependent steps into the loop that takes most of the time.
    """
    lowest_first = np.inf
    lowest_second = np.inf
    first = -np.inf
    second = -np.inf
    for k in range(columns.start_x.shape[0]):
        lowest_first = min(lowest_first, columns.start_x[k] - level * columns.start_y[k])
        lowest_second = min(lowest_second, level * columns.start_x[k] - columns.start_y[k])
        first = max(first, columns.end_x[k] - level * columns.end_y[k] - lowest_first)
        second = max(second, level * columns.end_x[k] - columns.end_y[k] - lowest_second)
    return first, second


@jitted
def interval_of_form(columns: Columns, weight_x: float, weight_y: float, value: float) -> tuple[int, int]:
    """Return start and end of the interval whose weight_x * x - weight_y * y is `value`, a maximum found before."""
    lowest = np.inf
    end = 0
    for k in range(columns.start_x.shape[0]):
        lowest = min(lowest, weight_x * columns.start_x[k] - weight_y * columns.start_y[k])
        if weight_x * columns.end_x[k] - weight_y * columns.end_y[k] - lowest == value:
            end = k
            break
    start = 0
    while weight_x * columns.start_x[start] - weight_y * columns.start_y[start] != lowest:
        start += 1
    return start, end


@jitted
def better_interval(columns: Columns, n: int, delta: float, level: float) -> tuple[float, int, int]:
    """Return a ratio above `level` and the start and end of an interval that reaches it; else `level` and -1, -1.

    n: models on each side.
    """
    first, second = largest_forms(columns, level)
    if first - delta * n > 0.0:
        start, end = interval_of_form(columns, 1.0, level, first)
        x = columns.end_x[end] - columns.start_x[start]
        y = columns.end_y[end] - columns.start_y[start]
        ratio = (x - delta * n) / y
        if ratio > level:
            return ratio, start, end
    if second + (1.0 - delta - level) * n > 0.0:
        start, end = interval_of_form(columns, level, 1.0, second)
        x = columns.end_x[end] - columns.start_x[start]
        y = columns.end_y[end] - columns.start_y[start]
        ratio = ((1.0 - delta) * n - y) / (n - x)
        if ratio > level:
            return ratio, start, end
    return level, -1, -1


@jitted
def best_interval(columns: Columns, n: int, delta: float, level: float) -> tuple[float, int, int, int, int]:
    """Return the largest ratio above `level` and the interval that reaches it; else `level` and counts of -1.

    The interval is given by counts: x and y before it, x and y up to its end.
    """
    rule = (-1, -1, -1, -1)
    while True:
        better, start, end = better_interval(columns, n, delta, level)
        if end < 0:
            return level, rule[0], rule[1], rule[2], rule[3]
        level = better
        rule = (
            int(columns.start_x[start]),
            int(columns.start_y[start]),
            int(columns.end_x[end]),
            int(columns.end_y[end]),
        )


@jitted
def strongest_rule(
    unlearned: Float64, retrained: Float64, delta: float, blocks: Float64, ranks: Int64
) -> tuple[float, bool, int, int, int, int]:
    """Return the rule of largest ratio on one example, as counts in its sorted samples.

    unlearned, retrained: sorted, shape (n_models,). blocks, ranks: workspaces of shape (6, n_models) and
    (2, n_models).
    Returns (ratio, calls the interval unlearned, then how many values of the called and of the other side lie before
    the interval, and how many up to its end). The ratio is infinite for perfect separation, and 1 with counts of -1
    if no rule has an epsilon above 0.
    """
    n = unlearned.shape[0]
    if separated(unlearned, retrained):
        between = np.searchsorted(retrained, unlearned[0])
        return np.inf, True, 0, between, n, between
    if separated(retrained, unlearned):
        between = np.searchsorted(unlearned, retrained[0])
        return np.inf, False, 0, between, n, between
    fill_ranks(unlearned, retrained, ranks)
    level = 1.0
    rule = (-1, -1, -1, -1)
    calls_unlearned = True
    # The level only rises, so a family of intervals that cannot exceed it now need not be searched again.
    for role in range(2):
        x, y = (unlearned, retrained) if role == 0 else (retrained, unlearned)
        count, first, beyond = fill_blocks(x, y, ranks[role], blocks)
        without_smallest = Columns(
            blocks[4, first:count], blocks[1, first:count], blocks[2, first:count], blocks[3, first:count]
        )
        without_largest = Columns(blocks[0, :beyond], blocks[1, :beyond], blocks[5, :beyond], blocks[3, :beyond])
        for columns in (without_smallest, without_largest):
            better, x_before, y_before, x_upto, y_upto = best_interval(columns, n, delta, level)
            if better > level:
                level = better
                rule = (x_before, y_before, x_upto, y_upto)
                calls_unlearned = role == 0
    return level, calls_unlearned, rule[0], rule[1], rule[2], rule[3]


@jitted
def exact_epsilon_of_sorted(unlearned: Float64, retrained: Float64, delta: float, cap: float) -> Float64:
    """Return epsilon per example, clipped to [0, cap].

    unlearned, retrained: shape (n_examples, n_models), each row sorted ascending.
    """
    n_examples, n = unlearned.shape
    result = np.empty(n_examples, np.float64)
    is_u = np.empty(2 * n, np.uint8)
    before = np.empty((2, 2 * n + 1), np.float64)
    blocks = np.empty((6, n), np.float64)
    ranks = np.empty((2, n), np.int64)
    for s in range(n_examples):
        u, r = unlearned[s], retrained[s]
        if separated(u, r) or separated(r, u):
            result[s] = cap
            continue
        ratio = strongest_of_runs(u, r, delta, is_u, before)
        if ratio == 0.0:  # a value is in both samples
            ratio = strongest_rule(u, r, delta, blocks, ranks)[0]
        result[s] = min(np.log(ratio), cap)
    return result
