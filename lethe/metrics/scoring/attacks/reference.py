"""The published program's attacks, bit for bit, by counting in sorted samples.

A rate is k/N, so an attack is a pair of counts. Both samples of an example are sorted once; the counts at every
threshold come from walking two pointers, and epsilon from tabulated float32 logarithms.

Between two neighbouring samples the counts do not change, so there are few pairs of counts and many thresholds. The
pairs are taken one by one, or ruled out in blocks; whether the grid has a threshold with such counts is looked up, in
the program's own rounding, only for a pair that would be the strongest so far.

Single thresholds are elements of torch.linspace in float32, as computed on processors with a fused multiply-add.

Source: Triantafillou et al. 2024, sections 3.1.1 and A.2; google-deepmind/unlearning_evaluation metric.py at ffae0ff.
"""

from typing import NamedTuple

import numpy as np

from lethe.metrics.core.compiled import jitted
from lethe.metrics.scoring.arrays import Float64, Int64, RateLogs

THRESHOLDS_PER_UNIT = 100
BUFFER = 2.0
N_LEFT = 400
PEAKY_RATIO = 0.01
NO_ATTACK = -1.0
MAX_CONFIDENCE = 2.0**20
_SEPARATED = np.float32(np.inf)
_DISCARDED = np.float32(-np.inf)
_BLOCK = 8  # places of a left threshold that are ruled out together
_BOUND_SLACK = np.float32(1e-4)  # far above the rounding of a logarithm


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


class LeftCounts(NamedTuple):
    """How many values lie before a left threshold, for every place that it can have; shape (n_places,) each, ascending.

    above, upto: a threshold has these counts if it is > above and <= upto.
    """

    above: Float64
    upto: Float64
    before_peaky: Int64
    before_other: Int64


@jitted
def attack_epsilon(false_negatives: int, false_positives: int, logs: RateLogs) -> np.float32:
    """Return an attack's epsilon before clipping, in nats, float32; -inf if discarded, +inf for separation."""
    if false_negatives == 0 and false_positives == 0:
        return _SEPARATED
    first = logs.log_rest[false_positives] - logs.log_rate[false_negatives]
    second = logs.log_rest[false_negatives] - logs.log_rate[false_positives]
    return max(first, second)


@jitted
def median_of_sorted(row: Float64) -> np.float64:
    """Return the median of a sorted sample: the middle value, or the mean of the two middle ones."""
    n = row.shape[0]
    if n % 2 == 1:
        return np.float64(row[n // 2])
    return np.float64((row[n // 2 - 1] + row[n // 2]) / 2.0)


@jitted
def fused_multiply_add(factor: np.float32, count: np.float32, start: np.float32) -> np.float32:
    """Return factor * count + start rounded once to float32.

    The product of two float32 is exact in float64. The sum is rounded to float64 and then to float32; those two
    roundings differ from one only where the float64 sum is inexact and falls on the middle of two float32.
    """
    product = np.float64(factor) * np.float64(count)
    addend = np.float64(start)
    total = product + addend
    result = np.float32(total)
    back = total - product
    error = (product - (total - back)) + (addend - back)
    if error == 0.0:
        return result
    gap = total - np.float64(result)
    towards = np.float32(np.inf) if gap > 0.0 else np.float32(-np.inf)
    other = np.nextafter(result, towards)
    if gap == 0.0 or gap != np.float64(other) - total:
        return result
    return other if (gap > 0.0) == (error > 0.0) else result


@jitted
def float32_linspace_at(start: np.float32, stop: np.float32, count: int, position: int) -> np.float32:
    """Return element `position` of torch.linspace(start, stop, count) in float32.

    The first half is counted up from the start, the second half down from the stop. Source: torch's CPU kernel,
    whose compiler fuses the multiplication and the addition wherever the processor can.
    """
    if count == 1:
        return start
    step = np.float32(stop - start) / np.float32(count - 1)
    if position < count // 2:
        return fused_multiply_add(step, np.float32(position), start)
    return fused_multiply_add(-step, np.float32(count - 1 - position), stop)


@jitted
def single_threshold_epsilon(positive: Float64, negative: Float64, logs: RateLogs) -> np.float32:
    """Return the strongest attack that calls values >= t positive, over the float32 grid of t.

    positive, negative: sorted samples of shape (n_models,). Thresholds are float32 but compared in float64.
    Every pair of counts that some threshold could have is taken in turn; whether one of the grid has it is looked up
    only for a pair that would be the strongest so far.
    """
    n = positive.shape[0]
    low = min(positive[0], negative[0])
    high = max(positive[n - 1], negative[n - 1])
    count = int(np.ceil((high - low) * THRESHOLDS_PER_UNIT))
    best = _DISCARDED
    below_positive = 0
    below_negative = 0
    while count > 0:
        last_below = -np.inf
        if below_positive > 0:
            last_below = positive[below_positive - 1]
        if below_negative > 0:
            last_below = max(last_below, negative[below_negative - 1])
        first_above = np.inf
        if below_positive < n:
            first_above = positive[below_positive]
        if below_negative < n:
            first_above = min(first_above, negative[below_negative])
        epsilon = attack_epsilon(below_positive, n - below_negative, logs)
        if epsilon > best and _has_threshold(np.float32(low), np.float32(high), count, last_below, first_above):
            best = epsilon
        if first_above == np.inf:
            break
        while below_positive < n and positive[below_positive] == first_above:
            below_positive += 1
        while below_negative < n and negative[below_negative] == first_above:
            below_negative += 1
    return best


@jitted
def _has_threshold(low: np.float32, high: np.float32, count: int, above: float, upto: float) -> bool:
    """Return whether one of the `count` thresholds is > above and <= upto.

    Either half of the grid ascends; where they meet, rounding can make it step back.
    """
    half = count // 2
    step = (np.float64(high) - np.float64(low)) / max(1, count - 1)
    guess = 0
    if step > 0.0 and above > low:
        guess = int(min((above - low) / step, np.float64(count)))
    for first, end in ((0, half), (half, count)):
        k = min(max(guess, first), end)
        while k > first and np.float64(float32_linspace_at(low, high, count, k - 1)) > above:
            k -= 1
        while k < end and np.float64(float32_linspace_at(low, high, count, k)) <= above:
            k += 1
        if k < end and np.float64(float32_linspace_at(low, high, count, k)) <= upto:
            return True
    return False


@jitted
def interval_epsilon(peaky: Float64, other: Float64, logs: RateLogs, at_least: np.float32) -> np.float32:
    """Return the strongest attack that calls left <= c <= right peaky, over the program's grid of pairs.

    peaky, other: sorted samples of shape (n_models,); the peaky one has the smaller range. at_least: what is known
    already; it is returned where no interval is stronger.
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
    return _strongest_interval(grid, _left_counts(grid), logs, at_least)


@jitted
def counts_upto(sample: Float64, thresholds: Float64) -> Int64:
    """Return, for each of the ascending thresholds, how many of the sorted sample are <= it."""
    counts = np.empty(thresholds.shape[0], np.int64)
    k = 0
    for i in range(thresholds.shape[0]):
        while k < sample.shape[0] and sample[k] <= thresholds[i]:
            k += 1
        counts[i] = k
    return counts


@jitted
def left_threshold(right: float, width: float, position: int) -> float:
    """Return left threshold `position` of a right threshold, in the program's order of float64 operations."""
    start = right - width - BUFFER
    stop = right - width + BUFFER
    if position == N_LEFT - 1:
        return stop
    return position * ((stop - start) / (N_LEFT - 1)) + start


@jitted
def _left_counts(grid: Grid) -> LeftCounts:
    """Return the counts that the left thresholds of the whole grid can have."""
    n = grid.peaky.shape[0]
    stop = left_threshold(grid.rights[-1], grid.width, N_LEFT - 1)
    start = left_threshold(grid.rights[0], grid.width, 0)
    before_peaky = int(np.searchsorted(grid.peaky, start))
    before_other = int(np.searchsorted(grid.other, start))
    counts = np.empty((2, 2 * n + 1), np.int64)
    ends = np.empty((2, 2 * n + 1), np.float64)
    above = -np.inf
    place = 0
    while above < stop:
        upto = np.inf
        if before_peaky < n:
            upto = grid.peaky[before_peaky]
        if before_other < n:
            upto = min(upto, grid.other[before_other])
        ends[0, place], ends[1, place] = above, upto
        counts[0, place], counts[1, place] = before_peaky, before_other
        place += 1
        while before_peaky < n and grid.peaky[before_peaky] == upto:
            before_peaky += 1
        while before_other < n and grid.other[before_other] == upto:
            before_other += 1
        above = upto
    return LeftCounts(ends[0, :place], ends[1, :place], counts[0, :place], counts[1, :place])


@jitted
def _strongest_interval(grid: Grid, left: LeftCounts, logs: RateLogs, at_least: np.float32) -> np.float32:
    best = at_least
    n_rights = grid.rights.shape[0]
    n_places = left.above.shape[0]
    lowest = 0
    beyond = 0
    i = 0
    while i < n_rights:
        end = i  # right thresholds i..end have the same counts
        while (
            end + 1 < n_rights
            and grid.upto_peaky[end + 1] == grid.upto_peaky[i]
            and grid.upto_other[end + 1] == grid.upto_other[i]
        ):
            end += 1
        start = left_threshold(grid.rights[i], grid.width, 0)
        stop = left_threshold(grid.rights[end], grid.width, N_LEFT - 1)
        while lowest < n_places and left.upto[lowest] < start:
            lowest += 1
        while beyond < n_places and left.above[beyond] < stop:
            beyond += 1
        for first in range(lowest, beyond, _BLOCK):
            last = min(first + _BLOCK, beyond) - 1
            if _bound(grid, left, i, first, last, logs) <= best:
                continue
            for place in range(first, last + 1):
                # a left threshold beyond the right one holds nothing, so its counts are 0 and not negative
                inside_peaky = max(0, grid.upto_peaky[i] - left.before_peaky[place])
                inside_other = max(0, grid.upto_other[i] - left.before_other[place])
                epsilon = attack_epsilon(grid.peaky.shape[0] - inside_peaky, inside_other, logs)
                if epsilon > best and _has_left(grid, i, end, left.above[place], left.upto[place]):
                    best = epsilon
        i = end + 1
    return best


@jitted
def _has_left(grid: Grid, first: int, last: int, above: float, upto: float) -> bool:
    """Return whether right thresholds first..last have a left threshold that is > above and <= upto."""
    for i in range(first, last + 1):
        right = grid.rights[i]
        ahead = (above - left_threshold(right, grid.width, 0)) / (2 * BUFFER / (N_LEFT - 1))
        k = int(min(max(ahead, 0.0), float(N_LEFT)))
        while k > 0 and left_threshold(right, grid.width, k - 1) > above:
            k -= 1
        while k < N_LEFT and left_threshold(right, grid.width, k) <= above:
            k += 1
        if k < N_LEFT and left_threshold(right, grid.width, k) <= upto:
            return True
    return False


@jitted
def _bound(  # noqa: PLR0917  compiled loops take no keywords
    grid: Grid, left: LeftCounts, right: int, first: int, last: int, logs: RateLogs
) -> np.float32:
    """Return what no interval exceeds that ends at a right threshold and begins at places first..last.

    The further left it begins, the more peaky values it holds, and the more others.
    """
    inside_peaky = max(0, grid.upto_peaky[right] - left.before_peaky[first])
    inside_other = max(0, grid.upto_other[right] - left.before_other[last])
    outside_peaky = grid.peaky.shape[0] - inside_peaky
    if outside_peaky == 0 and inside_other == 0:
        return _SEPARATED
    return attack_epsilon(max(1, outside_peaky), max(1, inside_other), logs) + _BOUND_SLACK  # a single 0 is discarded


@jitted
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
    best = interval_epsilon(peaky, other, logs, single_threshold_epsilon(positive, negative, logs))
    if best == _DISCARDED:
        return NO_ATTACK
    return min(max(float(best), 0.0), cap)


@jitted
def reference_epsilon_of_sorted(unlearned: Float64, retrained: Float64, logs: RateLogs, cap: float) -> Float64:
    """Return epsilon per example, clipped to [0, cap]; NO_ATTACK where the grids hold no applicable attack.

    unlearned, retrained: shape (n_examples, n_models), each row sorted ascending.
    """
    result = np.empty(unlearned.shape[0], np.float64)
    for s in range(unlearned.shape[0]):
        result[s] = example_epsilon(unlearned[s], retrained[s], logs, cap)
    return result
