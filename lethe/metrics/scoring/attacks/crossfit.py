"""Attacks fitted on one half of the models and judged on the other, with nothing that a participant could choose.

The published attack is chosen and judged on the same models, so it overfits them, and it discards every rule of which
exactly one error rate is zero: the original model with a single far run wins it. Here

* both sides get Gaussian noise of 0.1 Silverman bandwidths of the retrained models of the example, before anything
  else: the retrained side alone sets the resolution, copies are no longer equal, and no value is in both samples;
* each side is divided into two halves by a secret permutation; a rule is fitted on each half and judged on the other;
* the rule is the strongest of all intervals between observed values, called unlearned or called retrained;
* an error rate below FLOOR, or below half a model, counts as that: no rule is discarded, and the largest epsilon is
  log((1 - FLOOR) / FLOOR) = 3.9 at any N;
* the epsilon of a judged half is that of the ratio for which its rule was chosen and may be negative. Their mean over
  HALVINGS permutations and both directions is cut off at 0: cutting each at 0 would add up the noise of the null.

Why each of these: docs/decisions/0013-crossfit-attacks.md. Source: Lethe's own; rates and epsilon as in Triantafillou
et al. 2024, sections 3.1.1 and A.13.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from lethe.metrics.core.compiled import in_threads, jitted, slices
from lethe.metrics.scoring.arrays import Bool, Float64, Int8, Int32, Int64, order_of_runs
from lethe.metrics.scoring.attacks.disentangled import bandwidths

HALVINGS = 4
FLOOR = 0.02
NOISE = 0.1
MIN_NOISE = 1e-9  # of the retrained models' largest value: where they are all equal, equal values stay a draw
MIN_MODELS = 4
NOISE_STREAM, HALVES_STREAM = 0, 1


class Halves(NamedTuple):
    """The models of each half (1 or 2; 0 holds what is left out) and side (0 unlearned, 1 retrained), by their values.

    place: shape (3, 2, n_models), where a half's values stand among all sorted ones. rank: shape (3, 2, n_models + 1),
    how many of the half's other side lie before each. number: shape (3, 2), how many there are.
    """

    place: Int32
    rank: Int32
    number: Int64


def crossfit_epsilon(unlearned: Float64, retrained: Float64, *, delta: float, cap: float, seed: int) -> Float64:
    """Return epsilon per example, shape (n_examples,), within [0, cap].

    unlearned, retrained: checked, shape (n_models, n_examples), n_models >= 4. seed: of noise and halves; where a
    participant must not know them, a secret.
    """
    everything = np.ones((1, 2, len(unlearned)), np.bool_)
    epsilons = crossfit_epsilons(unlearned, retrained, everything, delta=delta, cap=cap, seed=seed)
    found: Float64 = epsilons[0]
    return found


def crossfit_epsilons(
    unlearned: Float64, retrained: Float64, kept: Bool, *, delta: float, cap: float, seed: int
) -> Float64:
    """Return epsilon per selection of models and example, shape (n_selections, n_examples).

    kept: bool, shape (n_selections, 2, n_models), which unlearned and which retrained models a selection holds, as many
    of each, at least 4. The selections share the noise, so values are sorted once for all of them; halves are drawn for
    each.
    """
    n_models, n_examples = unlearned.shape
    # Noise and halves go by the models' values, so that their order has no effect.
    orders = order_of_runs(unlearned), order_of_runs(retrained)
    unlearned, retrained = unlearned[orders[0]], retrained[orders[1]]
    kept = np.stack([kept[:, side, order] for side, order in enumerate(orders)], axis=1)
    width = noise_widths(retrained)
    total = np.zeros((len(kept), n_examples), np.float64)
    for halving in range(HALVINGS):
        # One draw for each model, shared by its examples.
        noise = np.random.default_rng([seed, NOISE_STREAM, halving]).standard_normal((2, n_models, 1))
        rows = np.concatenate((unlearned + width * noise[0], retrained + width * noise[1])).T.copy()
        labels = _halves(kept, np.random.default_rng([seed, HALVES_STREAM, halving]))
        parts = slices(n_examples)
        add = partial(_added, rows, labels, delta)
        for part, found in zip(parts, in_threads(add, parts), strict=True):
            total[:, part] += found
    epsilons: Float64 = np.clip(total / (2 * HALVINGS), 0.0, cap)
    return epsilons


def noise_widths(retrained: Float64) -> Float64:
    """Return the noise's standard deviation per example, shape (n_examples,); retrained: (n_models, n_examples)."""
    rows = np.ascontiguousarray(retrained.T)
    smallest = MIN_NOISE * np.maximum(1.0, np.abs(rows).max(axis=1))
    widths: Float64 = np.maximum(NOISE * bandwidths(rows), smallest)
    return widths


def _halves(kept: Bool, rng: np.random.Generator) -> Int8:
    """Return the half of each kept model, 1 or 2, and 0 for the others; shape (n_selections, 2 * n_models)."""
    labels = np.zeros(kept.shape, np.int8)
    for selection, halves in zip(kept, labels, strict=True):
        for side, chosen in zip(selection, halves, strict=True):
            models = rng.permutation(np.flatnonzero(side))
            first = (models.size + 1) // 2
            chosen[models[:first]] = 1
            chosen[models[first:]] = 2
    return labels.reshape(len(kept), -1)


def _added(rows: Float64, labels: Int8, delta: float, part: slice) -> Float64:
    return summed_epsilons(rows[part], labels, delta)


@jitted
def summed_epsilons(rows: Float64, labels: Int8, delta: float) -> Float64:
    """Return, per selection and example, the sum of both directions' signed epsilons; shape (n_selections, n_examples).

    rows: shape (n_examples, 2 * n_models), the noisy values of unlearned models, then of retrained ones. labels: see
    `_halves`.
    """
    n_selections, n_values = labels.shape
    n_models = n_values // 2
    result = np.empty((n_selections, rows.shape[0]), np.float64)
    place = np.empty((3, 2, n_models), np.int32)
    rank = np.empty((3, 2, n_models + 1), np.int32)
    count = np.empty((3, 2), np.int64)
    halves = Halves(place, rank, count)
    most = np.empty(n_models + 1, np.int32)
    for s in range(rows.shape[0]):
        order = np.argsort(rows[s])
        values = rows[s][order]
        for b in range(n_selections):
            count[:] = 0
            for i in range(n_values):
                model = order[i]
                half = labels[b, model]
                side = int(model >= n_models)
                k = count[half, side]
                place[half, side, k] = i
                rank[half, side, k] = count[half, 1 - side]
                count[half, side] = k + 1
            total = 0.0
            for half in range(1, 3):
                total += judged(values, halves, most, half, delta)
            result[b, s] = total
    return result


@jitted
def judged(values: Float64, halves: Halves, most: Int32, half: int, delta: float) -> float:
    """Return the signed epsilon of the rule that is fitted on `half`, on the other half; 0 without a rule."""
    place, rank, count = halves.place, halves.rank, halves.number
    n = count[half, 0]
    side, first, inside, of_unlearned_ratio = strongest_interval(rank[half], most, n, delta)
    if side < 0:
        return 0.0
    other = 1 - side
    n_called = rank[half, other, first - 1] if first > 0 else 0
    end_called = rank[half, other, first + inside] if first + inside < n else n
    # Boundaries lie midway between the value of the other side that is left out and the nearest value beside it.
    lower, upper = 0, values.shape[0]
    if first > 0:
        outside = place[half, other, first - 1]
        nearest = values.shape[0] - 1
        if first < n:
            nearest = place[half, other, first]
        if n_called < n:
            nearest = min(nearest, place[half, side, n_called])
        lower = cut_between(values, outside, nearest)
    if first + inside < n:
        outside = place[half, other, first + inside]
        nearest = 0
        if first + inside > 0:
            nearest = place[half, other, first + inside - 1]
        if end_called > 0:
            nearest = max(nearest, place[half, side, end_called - 1])
        upper = cut_between(values, nearest, outside)
    judge = 3 - half
    m = count[judge, 0]
    called = place[judge, side, :m]
    x = np.searchsorted(called, upper) - np.searchsorted(called, lower)
    called = place[judge, other, :m]
    y = np.searchsorted(called, upper) - np.searchsorted(called, lower)
    floor = max(FLOOR, 0.5 / m)
    missed, false = 1.0 - x / m, y / m
    if not of_unlearned_ratio:
        missed, false = false, missed
    return float(np.log(max(1.0 - delta - max(missed, floor), floor) / max(false, floor)))


@jitted
def cut_between(values: Float64, below: int, above: int) -> int:
    """Return how many of the sorted values lie at or below the middle of values[below] and values[above]."""
    middle = values[below] / 2.0 + values[above] / 2.0
    return int(below + np.searchsorted(values[below : above + 1], middle, side="right"))


@jitted
def strongest_interval(rank: Int32, most: Int32, n: int, delta: float) -> tuple[int, int, int, bool]:
    """Return the strongest rule on n models a side: (side, first, inside, whether by the ratio with 1 / FPR).

    rank: shape (2, > n), how many of the other side lie before each value of a side; its entry n is overwritten.
    most: workspace, shape (> n,). The interval is called `side` (0 unlearned, 1 retrained), holds the values first ...
    first + inside - 1 of the other side, and all of its own between the two that are left out. -1, 0, 0, True if no
    rule has an epsilon above 0.

    Among intervals with equally many values of the other side, the one with most of its own wins both ratios, so it is
    enough to know the most for each number.
    """
    floor = max(FLOOR * n, 0.5)
    best, best_side, best_inside, best_own, by_false = 1.0, -1, 0, 0, True
    for side in range(2):
        ends = rank[1 - side]
        ends[n] = n
        most_within(ends, most, n)
        for inside in range(n):
            x, y = min(float(most[inside]), n - floor), max(float(inside), floor)
            by_y = (x - delta * n) / y
            by_x = ((1.0 - delta) * n - y) / (n - x)
            if by_y > best or by_x > best:
                best, by_false = (by_y, True) if by_y >= by_x else (by_x, False)
                best_side, best_inside, best_own = side, inside, int(most[inside])
    if best_side < 0:
        return -1, 0, 0, True
    ends = rank[1 - best_side]
    first = 0
    while ends[first + best_inside] - (ends[first - 1] if first > 0 else 0) != best_own:
        first += 1
    return best_side, first, best_inside, by_false


@jitted
def most_within(ends: Int32, most: Int32, n: int) -> None:
    """Write, for each number below n of the other side's values, the most own values of an interval that holds so many.

    ends: shape (> n,), own values before each of the other side's, and n. The inner loop runs along memory without a
    reduction, so the processor takes several numbers at a time.
    """
    most[: n + 1] = 0
    for first in range(n + 1):
        start = ends[first - 1] if first > 0 else np.int32(0)
        tail, found = ends[first : n + 1], most[: n + 1 - first]
        for inside in range(tail.shape[0]):
            found[inside] = max(found[inside], np.int32(tail[inside] - start))
