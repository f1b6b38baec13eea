"""Lower bounds of epsilon from how often an attack errs: Clopper-Pearson bounds at a threshold chosen on other runs."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field
from scipy.stats import beta

from lethe.metrics.core.arrays import Float64, Int64
from lethe.metrics.core.registry import Metric, Parameters, both_sides
from lethe.metrics.core.result import MetricResult
from lethe.metrics.scoring.arrays import drawn_order


class BoundParameters(Parameters):
    """significance: probability that a bound is too high. delta: of (epsilon, delta). seed: draws the halves."""

    significance: float = Field(0.05, gt=0.0, lt=0.5)
    delta: float = Field(0.0, ge=0.0, lt=1.0)
    seed: int = Field(0, ge=0)


class FixedThresholdParameters(BoundParameters):
    """thresholds: fixed before looking at the judged half, and paid for by Bonferroni."""

    thresholds: int = Field(7, ge=1)


def clopper_pearson_upper(k: npt.ArrayLike, n: npt.ArrayLike, *, significance: float) -> Float64:
    """Return p such that k or fewer of n have probability `significance`; 1 where k = n. Shapes broadcast."""
    k, n = np.asarray(k, np.float64), np.asarray(n, np.float64)
    with np.errstate(invalid="ignore"):
        return np.where(k < n, beta.ppf(1.0 - significance, k + 1.0, np.maximum(n - k, 0.5)), 1.0)


def epsilon_of_counts(
    false_negatives: npt.ArrayLike,
    false_positives: npt.ArrayLike,
    *,
    n_members: int,
    n_others: int,
    significance: float,
    delta: float = 0.0,
    two_sided: bool = True,
) -> Float64:
    """Return lower bounds of epsilon, nats, at least 0; shape of the counts.

    log((1 - delta - FNR_ub) / FPR_ub), both rates by upper bounds at half the significance. two_sided: the larger of
    that and its mirror, log((1 - delta - FPR_ub) / FNR_ub), with no further correction: both hold at once.
    Source: Jagielski et al. 2020; jax_privacy, auditing.py.
    """
    fnr = clopper_pearson_upper(false_negatives, n_members, significance=significance / 2.0)
    fpr = clopper_pearson_upper(false_positives, n_others, significance=significance / 2.0)
    found = _log_ratio(1.0 - fnr - delta, fpr)
    return np.maximum(np.maximum(found, _log_ratio(1.0 - fpr - delta, fnr)) if two_sided else found, 0.0)


def _log_ratio(upper: Float64, lower: Float64) -> Float64:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(upper > 0.0, np.log(upper / lower), -np.inf)


def errors_at(members: Float64, others: Float64, thresholds: Float64) -> tuple[Int64, Int64]:
    """Return false negatives and false positives of "member from the threshold on", shape of the thresholds.

    members, others: scores, shape (n,) each.
    """
    below = np.searchsorted(np.sort(members), thresholds, side="left")
    return below, len(others) - np.searchsorted(np.sort(others), thresholds, side="left")


def hull_thresholds(members: Float64, others: Float64) -> Float64:
    """Return the thresholds on the concave hull of the ROC curve, ascending, infinity last; shape (n_points,)."""
    thresholds = np.append(np.union1d(members, others), np.inf)
    missed, alarms = errors_at(members, others, thresholds)
    x, y = missed, len(others) - alarms
    kept: list[int] = []
    for i in range(thresholds.size):
        while len(kept) >= 2 and _is_below(x, y, kept[-2], kept[-1], i):
            kept.pop()
        kept.append(i)
    return np.asarray(thresholds[kept])


def _is_below(x: Int64, y: Int64, first: int, middle: int, last: int) -> bool:
    rise, run = y[middle] - y[first], x[middle] - x[first]
    return bool(rise * (x[last] - x[middle]) <= (y[last] - y[middle]) * run)


def chosen_threshold(
    members: Float64, others: Float64, *, significance: float, delta: float = 0.0, two_sided: bool = True
) -> float:
    """Return the threshold on the hull with the largest log ratio of these scores, though it be below 0.

    Of the two ratios the mirrored one is looked at only where its bound is the larger. Infinity where none exists.
    """
    thresholds = hull_thresholds(members, others)
    missed, alarms = errors_at(members, others, thresholds)
    fnr = clopper_pearson_upper(missed, len(members), significance=significance / 2.0)
    fpr = clopper_pearson_upper(alarms, len(others), significance=significance / 2.0)
    ratios = _log_ratio(1.0 - fnr - delta, fpr)
    mirrored = _log_ratio(1.0 - fpr - delta, fnr)
    if two_sided and mirrored.max() > max(ratios.max(), 0.0):
        ratios = mirrored
    return float(thresholds[np.argmax(ratios)]) if np.isfinite(ratios.max()) else float("inf")


def _bounds(members: Float64, others: Float64, thresholds: Float64, **given: Any) -> Float64:
    errors = errors_at(members, others, thresholds)
    return epsilon_of_counts(*errors, n_members=len(members), n_others=len(others), **given)


def epsilon_at(members: Float64, others: Float64, threshold: float, **given: Any) -> float:
    """Return the bound at a threshold that was chosen without these scores. given: as for `epsilon_of_counts`."""
    return float(_bounds(members, others, np.array([threshold]), **given)[0])


def epsilon_bonferroni(
    members: Float64, others: Float64, thresholds: Float64, *, significance: float, **given: Any
) -> float:
    """Return the largest bound over thresholds, each at its share of the significance; given: as above.

    Valid where the thresholds were fixed without these scores; jax_privacy takes those of `hull_thresholds`, which
    were not.
    """
    return float(_bounds(members, others, thresholds, significance=significance / thresholds.size, **given).max())


def epsilon_bound(
    unlearned: Float64, retrained: Float64, *, significance: float = 0.05, delta: float = 0.0, seed: int = 0
) -> MetricResult:
    """Return a lower bound of the submission's epsilon that holds with probability 1 - significance, nats.

    unlearned, retrained: confidences, shapes (n_models, n_examples) each; the numbers of models may differ.
    On one half of the models the example, side and threshold with the largest bound are chosen; the other half gives
    the bound. per_example: the same with the example given, each at the significance for itself alone.
    table: the chosen example, the largest value that so many models can show.
    Independent of the score's epsilon, which is an estimate for the best of many attacks and no bound.
    Source: Jagielski et al. 2020 (arXiv:2006.07709); Nasr et al. 2021 (arXiv:2101.04535).
    """
    (u_choose, u_judge), (r_choose, r_judge) = _halves(unlearned, retrained, seed=seed)
    given: dict[str, Any] = {"significance": significance, "delta": delta}
    n_examples = u_choose.shape[1]
    promise, bounds = np.empty(n_examples), np.empty(n_examples)
    for example in range(n_examples):
        candidates = []
        for sign in (1.0, -1.0):
            members, others = sign * u_choose[:, example], sign * r_choose[:, example]
            threshold = _centred(chosen_threshold(members, others, **given), members, others)
            candidates.append((epsilon_at(members, others, threshold, **given), sign, threshold))
        promise[example], sign, threshold = max(candidates)
        bounds[example] = epsilon_at(sign * u_judge[:, example], sign * r_judge[:, example], threshold, **given)
    best = int(np.argmax(promise))
    table = {"example": best, "largest_possible": _largest(len(u_judge), len(r_judge), **given)}
    return MetricResult(float(bounds[best]), per_example=bounds, table=table)


def _centred(threshold: float, members: Float64, others: Float64) -> float:
    """Return the middle of the gap below a threshold, which counts the same on these scores and errs less on others."""
    scores = np.concatenate((members, others))
    below = scores[scores < threshold]
    if not below.size or not np.isfinite(threshold):
        return threshold
    middle = (threshold + float(below.max())) / 2.0
    return middle if middle > below.max() else threshold


def epsilon_bound_bonferroni(
    unlearned: Float64,
    retrained: Float64,
    *,
    significance: float = 0.05,
    delta: float = 0.0,
    seed: int = 0,
    thresholds: int = 7,
) -> MetricResult:
    """Return the largest lower bound over all examples and a fixed set of thresholds, nats; it holds for all at once.

    Arguments as for `epsilon_bound`. The thresholds are quantiles of one half of the retrained models; the
    unlearned models and the other half of the retrained ones are judged, with the significance shared by all
    examples, thresholds and both sides. per_example: each example's bound, which hold together.
    """
    u, r = unlearned, retrained
    _, (r_choose, r_judge) = _halves(u, r, seed=seed)
    n_examples = u.shape[1]
    levels = np.arange(1, thresholds + 1) / (thresholds + 1)
    bounds = np.empty(n_examples)
    for example in range(n_examples):
        fixed = np.quantile(r_choose[:, example], levels)
        bounds[example] = max(
            epsilon_bonferroni(
                sign * u[:, example],
                sign * r_judge[:, example],
                sign * fixed,
                significance=significance / (2 * n_examples),
                delta=delta,
            )
            for sign in (1.0, -1.0)
        )
    share = significance / (2 * n_examples * thresholds)
    table = {"largest_possible": _largest(len(u), len(r_judge), significance=share, delta=delta)}
    return MetricResult(float(bounds.max()), per_example=bounds, table=table)


def _halves(u: Float64, r: Float64, *, seed: int) -> tuple[tuple[Float64, Float64], tuple[Float64, Float64]]:
    rng = np.random.default_rng([seed, len(u), len(r)])
    parts = []
    for runs in (u, r):
        order = drawn_order(runs, rng)
        parts.append((runs[order[: len(runs) // 2]], runs[order[len(runs) // 2 :]]))
    return parts[0], parts[1]


def _largest(n_members: int, n_others: int, **given: Any) -> float:
    return float(epsilon_of_counts(0, 0, n_members=n_members, n_others=n_others, **given))


METRIC = Metric(
    title="Certified lower bound of epsilon",
    function=epsilon_bound,
    needs=both_sides("forget_margins"),
    fewest_models=4,  # two to choose by and two to judge
    unit="nats",
    defaults=BoundParameters,
    per_example=True,
    bounds=(0.0, float("inf")),
    source="Jagielski et al. 2020 (2006.07709); jax_privacy, auditing.py, `Split`",
    formula=(
        "max(0, log((1 - delta - FNR_ub) / FPR_ub), log((1 - delta - FPR_ub) / FNR_ub)), Clopper-Pearson at half the "
        "significance each, on a half of the models that did not choose the threshold"
    ),
    paper_and_code=(
        "PrivacyGuard chooses and bounds on the same scores without correction, which is no 95 % bound. jax_privacy "
        "puts the threshold at a score; here it is in the middle of the gap below it."
    ),
)

BONFERRONI = replace(
    METRIC,
    id="epsilon_bound_bonferroni",
    title="Certified lower bound of epsilon, all examples at once",
    function=epsilon_bound_bonferroni,
    defaults=FixedThresholdParameters,
    source="Jagielski et al. 2020 (2006.07709)",
    formula="as epsilon_bound, over fixed thresholds; the significance is divided by 2 x examples x thresholds",
    paper_and_code=(
        "jax_privacy divides by the points on the hull of the ROC curve, which depend on the scores; here the "
        "thresholds come from models that are not judged."
    ),
)
