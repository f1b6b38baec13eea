"""What a likelihood-ratio attack achieves: per example, and over all examples and models."""

from collections.abc import Mapping
from typing import Literal

import numpy as np

from lethe.metrics.arrays import Bool, Float64, Int64
from lethe.metrics.held_out_ratios import kernel_log_densities, normal_log_densities
from lethe.metrics.registry import Parameters
from lethe.metrics.result import MetricResult
from lethe.metrics.roc import roc_curve

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
