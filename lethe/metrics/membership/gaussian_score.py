"""Gaussian unlearning score: does a model still follow the noise that its forget examples were trained with?"""

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from lethe.metrics.core.arrays import Float64, real_array
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Need, Resampling
from lethe.metrics.core.result import MetricResult

RATE = 0.01


def noise_alignment(noise: npt.ArrayLike, gradients: npt.ArrayLike, *, deviation: float) -> Float64:
    """Return <noise, gradient> / (deviation |gradient|) of every example, shape (n_examples,); NaN without a gradient.

    noise: what was added to the inputs in training, shape (n_examples, n_inputs), from N(0, deviation^2).
    gradients: of the loss in the input, at the clean input, same shape.
    A model that fits the noisy inputs has negative values, one that never saw them N(0, 1).
    Raises InvalidMetricInput for unequal shapes or a deviation that is not above 0.
    Source: Pawelczyk et al. 2024 (arXiv:2406.17216), algorithm 2.
    """
    axes = ("examples", "inputs")
    added, slopes = (
        real_array(values, axes=axes, name=name) for name, values in (("noise", noise), ("gradients", gradients))
    )
    if added.shape != slopes.shape:
        raise InvalidMetricInput(
            f"noise of shape {added.shape} and gradients of {slopes.shape} are not of the same inputs"
        )
    if not deviation > 0.0:
        raise InvalidMetricInput(f"the noise's deviation must be above 0, not {deviation}")
    length = np.sqrt((slopes**2).sum(axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(length > 0.0, (added * slopes).sum(axis=1) / (deviation * length), np.nan)


def gaussian_score(unlearned: Float64) -> MetricResult:
    """Return the mean over runs of the mean alignment times the root of the number of examples; near 0 when forgotten.

    unlearned: `noise_alignment` of every run, shape (n_models, n_examples); N(0, 1) each when the noise is forgotten,
    so that the value of a run is a z statistic; negative when it is not. per_run: that statistic.
    table: the share of examples below the lower and above the upper 1 % point of N(0, 1), and the mean.
    Source: Pawelczyk et al. 2024 (arXiv:2406.17216), algorithms 1 and 2; the test on the scores is Lethe's.
    """
    point = float(ndtri(1.0 - RATE))
    z = unlearned.mean(axis=1) * np.sqrt(unlearned.shape[1])
    table = {
        "lower_share": float((unlearned < -point).mean()),
        "upper_share": float((unlearned > point).mean()),
        "mean": float(unlearned.mean()),
    }
    return MetricResult(float(z.mean()), per_run=z, table=table)


METRIC = Metric(
    id="gaussian_score",
    title="Gaussian unlearning score",
    function=gaussian_score,
    needs={"unlearned": Need("noise_alignment")},
    unit="z",
    direction=Direction.TOWARDS_RETRAINED,
    resampling=Resampling.RUNS,
    source="Pawelczyk et al. 2024 (2406.17216), algorithms 1 and 2",
    formula="mean_n sqrt(S) mean_x <xi_x, g_nx> / (sigma |g_nx|), g the input gradient of the loss at the clean input",
    paper_and_code=(
        "The paper reads the true positive rate at 1 % of the upper tail; with its sign a model that has not forgotten "
        "lies in the lower one. Examples without a gradient have no score and must be left out. Training must "
        "have been "
        "poisoned with known noise, which no competition's preparation does: the array is the user's own."
    ),
)
