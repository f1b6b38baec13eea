"""The published program's attacks, bit for bit, by counting in sorted samples.

A rate is k/N, so an attack is a pair of counts. Both samples of an example are sorted once; the counts at every
threshold of the program's grids then come from walking two pointers, and epsilon from tabulated float32 logarithms.

The interval grid has 400 right thresholds (sometimes 401) with 400 left thresholds each. With 400 the two steps are
equal up to rounding, so left threshold j of right threshold i depends on i + j alone up to the last bits: 799
diagonals. Counts are taken once per diagonal; only a diagonal with a sample within `tolerance` of it, far above the
rounding, is evaluated threshold by threshold.

Source: Triantafillou et al. 2024, sections 3.1.1 and A.2; google-deepmind/unlearning_evaluation metric.py at ffae0ff.
"""

from typing import NamedTuple

import numpy as np

from lethe.metrics.epsilon.arrays import Float64, Int64
from lethe.metrics.epsilon.attacks.linspace import float32_linspace_at
from lethe.metrics.epsilon.compiled import compiled
from lethe.metrics.epsilon.rates import RateLogs

THRESHOLDS_PER_UNIT = 100
BUFFER = 2.0
N_LEFT = 400
PEAKY_RATIO = 0.01
NO_ATTACK = -1.0
LARGEST_CONFIDENCE = 2.0**20
_N_DIAGONALS = 2 * N_LEFT - 1
_SEPARATED = np.float32(np.inf)
_DISCARDED = np.float32(-np.inf)
_EPS64 = 2.0**-52
_TOLERANCE = 1e-9


class Grid(NamedTuple):
    """The right thresholds of one example and the counts that go with them.

    peaky, other: the sorted samples, shape (n_models,); the peaky one has the smaller range, `width`.
    rights: shape (n_rights,), ascending. upto_peaky, upto_other: shape (n_rights,), how many values are <= each.
    """

    peaky: Float64
    other: Float64
    width: float
    rights: Float64
    upto_peaky: Int64
    upto_other: Int64


class Diagonals(NamedTuple):
    """Runs of neighbouring diagonals that have equal counts below them; shape (n_groups,) each."""

    first: Int64
    last: Int64
    before_peaky: Int64
    before_other: Int64


@compiled
def attack_epsilon(false_negatives: int, false_positives: int, logs: RateLogs) -> np.float32:
    """Return an attack's epsilon before clipping, in nats, float32; -inf if discarded, +inf for separation."""
    if false_negatives == 0 and false_positives == 0:
        return _SEPARATED
    first = logs.log_rest[false_positives] - logs.log_rate[false_negatives]
    second = logs.log_rest[false_negatives] - logs.log_rate[false_positives]
    return max(first, second)


@compiled
def median_of_sorted(row: Float64) -> np.float64:
    """Return the median of a sorted sample: the middle value, or the mean of the two middle ones."""
    n = row.shape[0]
    if n % 2 == 1:
        return np.float64(row[n // 2])
    return np.float64((row[n // 2 - 1] + row[n // 2]) / 2.0)


@compiled
def single_threshold_epsilon(positive: Float64, negative: Float64, logs: RateLogs) -> np.float32:
    """Return the strongest attack that calls values >= t positive, over the float32 grid of t.

    positive, negative: sorted samples of shape (n_models,). Thresholds are float32 but compared in float64.
    """
    n = positive.shape[0]
    low = min(positive[0], negative[0])
    high = max(positive[n - 1], negative[n - 1])
    count = int(np.ceil((high - low) * THRESHOLDS_PER_UNIT))
    best = _DISCARDED
    below_positive = 0
    below_negative = 0
    for k in range(count):
        threshold = np.float64(float32_linspace_at(np.float32(low), np.float32(high), count, k))
        while below_positive < n and positive[below_positive] < threshold:
            below_positive += 1
        while below_positive > 0 and positive[below_positive - 1] >= threshold:
            below_positive -= 1  # rounding can make the middle of the grid step back
        while below_negative < n and negative[below_negative] < threshold:
            below_negative += 1
        while below_negative > 0 and negative[below_negative - 1] >= threshold:
            below_negative -= 1
        best = max(best, attack_epsilon(below_positive, n - below_negative, logs))
    return best


@compiled
def interval_epsilon(peaky: Float64, other: Float64, logs: RateLogs) -> np.float32:
    """Return the strongest attack that calls left <= c <= right peaky, over the program's grid of pairs.

    peaky, other: sorted samples of shape (n_models,); the peaky one has the smaller range.
    """
    n = peaky.shape[0]
    width = peaky[n - 1] - peaky[0]
    first = peaky[0] + width - BUFFER
    last = peaky[n - 1] + BUFFER
    count = int(np.ceil((last - first) * THRESHOLDS_PER_UNIT))
    step = (last - first) / (count - 1)
    rights = np.empty(count, np.float64)
    for i in range(count):
        rights[i] = i * step + first
    rights[count - 1] = last
    grid = Grid(peaky, other, width, rights, counts_upto(peaky, rights), counts_upto(other, rights))
    magnitude = abs(first) + abs(last) + width + 2 * BUFFER
    if count == N_LEFT and 16 * _EPS64 * magnitude < _TOLERANCE:
        return _by_diagonals(grid, logs)
    return _by_rows(grid, logs)


@compiled
def counts_upto(sample: Float64, thresholds: Float64) -> Int64:
    """Return, for each of the ascending thresholds, how many of the sorted sample are <= it."""
    counts = np.empty(thresholds.shape[0], np.int64)
    k = 0
    for i in range(thresholds.shape[0]):
        while k < sample.shape[0] and sample[k] <= thresholds[i]:
            k += 1
        counts[i] = k
    return counts


@compiled
def left_threshold(right: float, width: float, position: int) -> float:
    """Return left threshold `position` of a right threshold, in the program's order of float64 operations."""
    start = right - width - BUFFER
    stop = right - width + BUFFER
    if position == N_LEFT - 1:
        return stop
    return position * ((stop - start) / (N_LEFT - 1)) + start


@compiled
def interval_attack(grid: Grid, right: int, before_peaky: int, before_other: int, logs: RateLogs) -> np.float32:
    """Return epsilon of the interval that ends at a right threshold and has so many values before it.

    A left threshold beyond the right one holds nothing, so its counts are 0 and not negative.
    """
    inside_peaky = max(0, grid.upto_peaky[right] - before_peaky)
    inside_other = max(0, grid.upto_other[right] - before_other)
    return attack_epsilon(grid.peaky.shape[0] - inside_peaky, inside_other, logs)


@compiled
def _by_rows(grid: Grid, logs: RateLogs) -> np.float32:
    n = grid.peaky.shape[0]
    best = _DISCARDED
    for i in range(grid.rights.shape[0]):
        before_peaky = 0
        before_other = 0
        for j in range(N_LEFT):
            left = left_threshold(grid.rights[i], grid.width, j)
            while before_peaky < n and grid.peaky[before_peaky] < left:
                before_peaky += 1
            while before_other < n and grid.other[before_other] < left:
                before_other += 1
            best = max(best, interval_attack(grid, i, before_peaky, before_other, logs))
    return best


@compiled
def _by_diagonals(grid: Grid, logs: RateLogs) -> np.float32:
    n = grid.peaky.shape[0]
    best = _DISCARDED
    groups = np.empty((4, _N_DIAGONALS), np.int64)
    n_groups = 0
    origin = grid.rights[0] - grid.width - BUFFER
    step = 2 * BUFFER / (N_LEFT - 1)
    before_peaky = 0
    before_other = 0
    for d in range(_N_DIAGONALS):
        left = origin + d * step
        while before_peaky < n and grid.peaky[before_peaky] < left - _TOLERANCE:
            before_peaky += 1
        while before_other < n and grid.other[before_other] < left - _TOLERANCE:
            before_other += 1
        near_peaky = before_peaky < n and grid.peaky[before_peaky] <= left + _TOLERANCE
        near_other = before_other < n and grid.other[before_other] <= left + _TOLERANCE
        if near_peaky or near_other:
            best = max(best, _one_diagonal(grid, d, before_peaky, before_other, logs))
            continue
        last = n_groups - 1
        if n_groups == 0 or groups[2, last] != before_peaky or groups[3, last] != before_other:
            last = n_groups
            n_groups += 1
            groups[0, last] = d
            groups[2, last] = before_peaky
            groups[3, last] = before_other
        groups[1, last] = d
    diagonals = Diagonals(groups[0, :n_groups], groups[1, :n_groups], groups[2, :n_groups], groups[3, :n_groups])
    return max(best, _in_groups(grid, diagonals, logs))


@compiled
def _one_diagonal(grid: Grid, diagonal: int, before_peaky: int, before_other: int, logs: RateLogs) -> np.float32:
    n = grid.peaky.shape[0]
    best = _DISCARDED
    for i in range(max(0, diagonal - N_LEFT + 1), min(N_LEFT - 1, diagonal) + 1):
        left = left_threshold(grid.rights[i], grid.width, diagonal - i)
        p = before_peaky
        while p < n and grid.peaky[p] < left:
            p += 1
        q = before_other
        while q < n and grid.other[q] < left:
            q += 1
        best = max(best, interval_attack(grid, i, p, q, logs))
    return best


@compiled
def _in_groups(grid: Grid, diagonals: Diagonals, logs: RateLogs) -> np.float32:
    best = _DISCARDED
    n_groups = diagonals.first.shape[0]
    lowest = 0
    i = 0
    while i < N_LEFT:
        end = i  # right thresholds i..end have the same counts
        while (
            end + 1 < N_LEFT
            and grid.upto_peaky[end + 1] == grid.upto_peaky[i]
            and grid.upto_other[end + 1] == grid.upto_other[i]
        ):
            end += 1
        while lowest < n_groups and diagonals.last[lowest] < i:
            lowest += 1
        for g in range(lowest, n_groups):
            if diagonals.first[g] > end + N_LEFT - 1:
                break
            best = max(best, interval_attack(grid, i, diagonals.before_peaky[g], diagonals.before_other[g], logs))
        i = end + 1
    return best


@compiled
def example_epsilon(unlearned: Float64, retrained: Float64, logs: RateLogs, cap: float) -> float:
    """Return epsilon of one example, clipped to [0, cap], or NO_ATTACK; both sorted, shape (n_models,)."""
    n = unlearned.shape[0]
    unlearned_range = unlearned[n - 1] - unlearned[0]
    retrained_range = retrained[n - 1] - retrained[0]
    largest = max(unlearned_range, retrained_range)
    if largest > 0.0 and min(unlearned_range, retrained_range) / largest < PEAKY_RATIO:
        return cap
    retrained_is_positive = median_of_sorted(retrained) > median_of_sorted(unlearned)
    positive, negative = (retrained, unlearned) if retrained_is_positive else (unlearned, retrained)
    negative_is_peaky = positive[n - 1] - positive[0] >= negative[n - 1] - negative[0]
    peaky, other = (negative, positive) if negative_is_peaky else (positive, negative)
    best = max(single_threshold_epsilon(positive, negative, logs), interval_epsilon(peaky, other, logs))
    if best == _DISCARDED:
        return NO_ATTACK
    return min(max(float(best), 0.0), cap)


@compiled
def reference_epsilon_of_sorted(unlearned: Float64, retrained: Float64, logs: RateLogs, cap: float) -> Float64:
    """Return epsilon per example, clipped to [0, cap]; NO_ATTACK where the grids hold no applicable attack.

    unlearned, retrained: shape (n_examples, n_models), each row sorted ascending.
    """
    result = np.empty(unlearned.shape[0], np.float64)
    for s in range(unlearned.shape[0]):
        result[s] = example_epsilon(unlearned[s], retrained[s], logs, cap)
    return result
