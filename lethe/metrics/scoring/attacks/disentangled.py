"""Attacks fitted on one half of the models and judged on the other, smoothed half.

The published attack is chosen and judged on the same models, so it overfits them. Here the strongest rule of the
exact family is chosen on one half of each side; its boundaries are put midway between the neighbouring observed
values; its error rates are then taken on the other half, each side smoothed by a Gaussian kernel. Smoothing leaves
no rate at zero for want of samples, so no rule is discarded: a rate that is zero all the same (a side that is one
repeated value) counts as what it is.

Bandwidth: Silverman's rule, 0.9 min(standard deviation, interquartile range / 1.34) n**(-1/5), per example and side;
the standard deviation alone where the interquartile range is 0; no smoothing where both are 0.

The halves come from a seeded permutation of the models, not from their positions: a participant who knew which runs
are judged could mislead the rule with the others.

Source: Triantafillou et al. 2024, section A.13; the paper leaves family of rules and bandwidth open.
"""

import numpy as np
from scipy.special import ndtr

from lethe.metrics.core.compiled import jitted
from lethe.metrics.scoring.arrays import Bool, Float64, sorted_values
from lethe.metrics.scoring.attacks.exact import strongest_rule


def disentangled_epsilon(unlearned: Float64, retrained: Float64, *, delta: float, cap: float, seed: int) -> Float64:
    """Return epsilon per example, shape (n_examples,), within [0, cap].

    unlearned, retrained: checked, shape (n_models, n_examples), n_models >= 4. seed: fixes the halves; the same
    models are judged for every example.
    """
    fit_u, judge_u = halves(unlearned, seed=seed, side=0)
    fit_r, judge_r = halves(retrained, seed=seed, side=1)
    lower, upper, calls_unlearned = fitted_rules(sorted_values(fit_u), sorted_values(fit_r), delta)
    inside_u, outside_u = smoothed_masses(judge_u, lower, upper)
    inside_r, outside_r = smoothed_masses(judge_r, lower, upper)
    false_negative = np.where(calls_unlearned, outside_u, outside_r)
    false_positive = np.where(calls_unlearned, inside_r, inside_u)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.fmax(
            (1.0 - delta - false_positive) / false_negative, (1.0 - delta - false_negative) / false_positive
        )
    ruled = ~np.isnan(lower)
    epsilon = np.log(np.fmax(np.where(ruled, ratio, 1.0), 1.0))
    return np.minimum(epsilon, cap)


def halves(confidences: Float64, *, seed: int, side: int) -> tuple[Float64, Float64]:
    """Return the models to fit on and the models to judge on (one fewer if their number is odd).

    confidences: shape (n_models, n_examples). side: 0 for unlearned, 1 for retrained; drawn apart.
    """
    shuffled = np.random.default_rng([seed, side]).permutation(confidences.shape[0])
    n_fit = (confidences.shape[0] + 1) // 2
    return confidences[shuffled[:n_fit]], confidences[shuffled[n_fit:]]


@jitted
def fitted_rules(unlearned: Float64, retrained: Float64, delta: float) -> tuple[Float64, Float64, Bool]:
    """Return per example the interval (lower, upper) of the strongest rule and whether it calls unlearned.

    unlearned, retrained: shape (n_examples, n_models), rows ascending. Bounds may be infinite; NaN where no rule has
    an epsilon above 0.
    """
    n_examples, n = unlearned.shape
    lower = np.full(n_examples, np.nan)
    upper = np.full(n_examples, np.nan)
    calls_unlearned = np.zeros(n_examples, np.bool_)
    blocks = np.empty((6, n), np.float64)
    ranks = np.empty((2, n), np.int64)
    for s in range(n_examples):
        _, calls, x_before, y_before, x_upto, y_upto = strongest_rule(unlearned[s], retrained[s], delta, blocks, ranks)
        if x_before < 0:
            continue
        x, y = (unlearned[s], retrained[s]) if calls else (retrained[s], unlearned[s])
        calls_unlearned[s] = calls
        lower[s] = cut(x, y, x_before, y_before)
        upper[s] = cut(x, y, x_upto, y_upto)
    return lower, upper, calls_unlearned


@jitted
def cut(x: Float64, y: Float64, x_before: int, y_before: int) -> float:
    """Return the point midway between the last value before a cut and the first after it; infinite at the ends.

    x, y: sorted, shape (n_models,); x_before and y_before of them lie before the cut.
    """
    n = x.shape[0]
    before = -np.inf
    if x_before > 0:
        before = max(before, x[x_before - 1])
    if y_before > 0:
        before = max(before, y[y_before - 1])
    after = np.inf
    if x_before < n:
        after = min(after, x[x_before])
    if y_before < n:
        after = min(after, y[y_before])
    return before / 2.0 + after / 2.0


def bandwidths(rows: Float64) -> Float64:
    """Return Silverman's bandwidth per example, shape (n_examples,); rows: shape (n_examples, n_models)."""
    deviation = rows.std(axis=1, ddof=1)
    high, low = np.quantile(rows, (0.75, 0.25), axis=1)
    spread = np.where(high > low, np.minimum(deviation, (high - low) / 1.34), deviation)
    return np.asarray(0.9 * spread * rows.shape[1] ** -0.2, dtype=np.float64)


def smoothed_masses(sample: Float64, lower: Float64, upper: Float64) -> tuple[Float64, Float64]:
    """Return the smoothed share of a sample inside and outside the interval of each example.

    sample: shape (n_models, n_examples). lower, upper: shape (n_examples,), may be infinite or NaN (shares NaN).
    """
    rows = np.ascontiguousarray(sample.T)  # sums along memory, so that an example's do not depend on the others
    width = bandwidths(rows)
    width = np.where(width > 0.0, width, np.finfo(np.float64).tiny)[:, None]
    with np.errstate(over="ignore"):
        from_lower = (lower[:, None] - rows) / width
        from_upper = (rows - upper[:, None]) / width
    outside = (ndtr(from_lower) + ndtr(from_upper)).mean(axis=1)
    inside = (ndtr(-from_upper) - ndtr(from_lower)).mean(axis=1)
    return np.maximum(inside, 0.0), outside
