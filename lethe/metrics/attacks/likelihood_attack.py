"""Likelihood-ratio attacks on held-out models: densities, ratios, and what the attack achieves on its ROC curve.

Every value belongs to a group (its split, or its pair of models), numbered from 0. The densities for a value are
fitted to the values of the other groups. Ties are one step of the curve, and points on a straight line are left out, as
scikit-learn's `roc_curve` does, so that sums have the terms of the published programs in their order.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.arrays import Bool, Float64, Int64
from lethe.metrics.core.compiled import compiled
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Parameters
from lethe.metrics.core.result import MetricResult


@dataclass(frozen=True, eq=False)
class RocCurve:
    """false_positive_rate, true_positive_rate: shape (n_points,), ascending, from (0, 0) to (1, 1)."""

    false_positive_rate: Float64
    true_positive_rate: Float64

    @property
    def area(self) -> float:
        """Return the area under the curve, in [0, 1]; 0.5 is chance."""
        return float(np.trapezoid(self.true_positive_rate, self.false_positive_rate))

    @property
    def accuracy(self) -> float:
        """Return the largest balanced accuracy over all thresholds, in [0.5, 1]."""
        return float(np.max(1 - (self.false_positive_rate + (1 - self.true_positive_rate)) / 2))

    def true_positive_rate_below(self, false_positive_rate: float) -> float:
        """Return the true positive rate at the last point whose false positive rate is below the given one (> 0)."""
        if not 0.0 < false_positive_rate <= 1.0:
            raise InvalidMetricInput(f"the false positive rate must be within (0, 1], not {false_positive_rate}")
        return float(self.true_positive_rate[np.flatnonzero(self.false_positive_rate < false_positive_rate)[-1]])


def roc_curve(scores: Float64, members: npt.NDArray[np.bool_]) -> RocCurve:
    """Return the curve of scores, the larger the likelier a member.

    scores: shape (n,), no NaN. members: shape (n,), bool, with both kinds. Raises InvalidMetricInput for one kind only.
    """
    if members.all() or not members.any():
        raise InvalidMetricInput("a ROC curve needs members and non-members; all scores are of one kind")
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    steps = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), ranked.size - 1)
    hits = np.cumsum(members[order], dtype=np.float64)[steps]
    alarms = 1.0 + steps - hits
    if hits.size > 2:
        corner = np.ones(hits.size, dtype=bool)
        corner[1:-1] = (np.diff(alarms, 2) != 0) | (np.diff(hits, 2) != 0)
        hits, alarms = hits[corner], alarms[corner]
    return RocCurve(np.append(0.0, alarms / alarms[-1]), np.append(0.0, hits / hits[-1]))


Density = Literal["normal", "kde"]
LOW_RATES = (0.001, 0.01, 0.05)


class DensityParameters(Parameters):
    """density: "normal" (LiRA), or "kde": Gaussian kernels of bandwidth 1 (RULI)."""

    density: Density = "normal"


def held_out_ratios(
    forgotten: Float64, unseen: Float64, groups: tuple[Int64, Int64], *, density: Density
) -> tuple[Float64, Float64]:
    """Return the log ratio forgotten : unseen of the values of both worlds, of one example.

    forgotten, unseen: shape (n_forgotten,), (n_unseen,). groups: of the values of each; fitted on the other groups.
    """
    log_density = kernel_log_densities if density == "kde" else normal_log_densities
    values, owners = np.concatenate((forgotten, unseen)), np.concatenate(groups)
    ratios = log_density(values, owners, forgotten, groups[0]) - log_density(values, owners, unseen, groups[1])
    return ratios[: forgotten.size], ratios[forgotten.size :]


def attack_result(per_example: Float64, ratios: Float64, forgotten: Bool) -> MetricResult:
    """Return the mean accuracy, accuracies per example, and the numbers of the ROC curve over all ratios.

    per_example: shape (n_examples,). ratios: shape (n,), of all examples and models. forgotten: shape (n,).
    """
    curve = roc_curve(ratios, forgotten)
    table: Mapping[str, float] = {"auc": curve.area} | {
        f"true_positive_rate_below_{rate:g}": curve.true_positive_rate_below(rate) for rate in LOW_RATES
    }
    return MetricResult(float(per_example.mean()), per_example=per_example, table=table)


def balanced_accuracy(forgotten: Float64, unseen: Float64) -> float:
    """Return the mean of both worlds' shares called rightly by the sign of the ratio; a ratio of 0 counts half."""
    hits = np.mean(forgotten > 0) + 0.5 * np.mean(forgotten == 0)
    rejections = np.mean(unseen < 0) + 0.5 * np.mean(unseen == 0)
    return float(0.5 * (hits + rejections))


MIN_DEVIATION = 1e-30  # added to every standard deviation, as the program of Carlini et al. 2022 does
_LOG_SCALE = 0.5 * np.log(2.0 * np.pi)
_LOSS_OF_DIGITS = 1e-8  # below this share of the squares, what is left is computed from the values


@compiled
def normal_log_densities(targets: Float64, target_groups: Int64, values: Float64, groups: Int64) -> Float64:
    """Return the log density of every target under a normal density (ddof 0), shape (n_targets,).

    targets: shape (n_targets,). values: shape (n_values,), one example under the models of one world; of every group
    there must be values of another.
    """
    n_groups = max(groups.max(), target_groups.max()) + 1
    sizes, sums = np.zeros(n_groups), np.zeros(n_groups)
    for i in range(values.size):
        sizes[groups[i]] += 1.0
        sums[groups[i]] += values[i]
    squares = np.zeros(n_groups)  # about the mean of the group
    for i in range(values.size):
        squares[groups[i]] += (values[i] - sums[groups[i]] / sizes[groups[i]]) ** 2
    mean = values.mean()
    constant = values.max() == values.min()  # a difference of sums leaves a mean beside it, 1e13 deviations away
    total = ((values - mean) ** 2).sum()
    means, deviations = np.empty(n_groups), np.empty(n_groups)
    for group in range(n_groups):
        left = values.size - sizes[group]
        means[group] = (values.sum() - sums[group]) / left
        rest = total
        if constant:
            means[group], rest = values[0], 0.0
        elif sizes[group] > 0:
            apart = means[group] - sums[group] / sizes[group]
            rest = total - squares[group] - sizes[group] * left / values.size * apart**2
            if rest <= _LOSS_OF_DIGITS * total:
                kept = values[groups != group]
                means[group] = kept[0] if kept.max() == kept.min() else kept.mean()
                rest = ((kept - means[group]) ** 2).sum()
        deviations[group] = np.sqrt(rest / left) + MIN_DEVIATION
    densities = np.empty(targets.size)
    for i in range(targets.size):
        deviation = deviations[target_groups[i]]
        distance = (targets[i] - means[target_groups[i]]) / deviation
        densities[i] = -0.5 * distance**2 - np.log(deviation) - _LOG_SCALE
    return densities


@compiled
def kernel_log_densities(targets: Float64, target_groups: Int64, values: Float64, groups: Int64) -> Float64:
    """Return the log density under a sum of Gaussian kernels of bandwidth 1; arguments as above.

    Source: Naderloui et al. 2025 (RULI), program: scikit-learn's `KernelDensity` with its defaults.
    """
    densities = np.empty(targets.size)
    for i in range(targets.size):
        n, nearest = 0, np.inf
        for j in range(values.size):
            if groups[j] != target_groups[i]:
                n += 1
                nearest = min(nearest, 0.5 * (targets[i] - values[j]) ** 2)
        total = 0.0
        for j in range(values.size):
            if groups[j] != target_groups[i]:
                total += np.exp(nearest - 0.5 * (targets[i] - values[j]) ** 2)
        densities[i] = np.log(total / n) - nearest - _LOG_SCALE
    return densities
