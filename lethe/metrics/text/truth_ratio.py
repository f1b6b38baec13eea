"""Truth ratio: how likely wrong answers are compared with the right one.

Source: Maini et al. 2024 (TOFU), equation 1. The equation takes the arithmetic mean of the wrong answers'
probabilities; the leaderboard, all forget-quality code and open-unlearning take the geometric mean.
"""

from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.registry import Direction, Metric, Need, Resampling
from lethe.metrics.core.result import MetricResult
from lethe.metrics.text.losses import Float64, with_options
from lethe.metrics.text.per_run import mean_of_examples
from lethe.metrics.text.probabilities import option_probabilities

_LARGEST_EXPONENT = 700.0  # exp() of more overflows

Mean = Literal["geometric", "arithmetic"]


def truth_ratios(
    answer_loss: npt.ArrayLike, wrong_loss: npt.ArrayLike, *, mean: Mean = "geometric", offset: float = 0.0
) -> Float64:
    """Return the mean probability of the wrong answers over that of the right one, shape (..., n).

    answer_loss: shape (..., n), of the paraphrased answer where there is one. wrong_loss: shape (..., n, k).
    offset: added to the denominator; 1e-10 in open-unlearning, 0 in TOFU.
    """
    right, wrong = with_options(answer_loss, wrong_loss)
    typical = np.exp(-wrong.mean(axis=-1)) if mean == "geometric" else np.exp(-wrong).mean(axis=-1)
    if offset:
        return np.asarray(typical / (np.exp(-right) + offset), np.float64)
    if mean == "geometric":
        return np.asarray(np.exp(np.minimum(right - wrong.mean(axis=-1), _LARGEST_EXPONENT)), np.float64)
    # of answers without measurable probability, only the difference of the losses is left
    from_losses = np.exp(np.minimum(right[..., None] - wrong, _LARGEST_EXPONENT)).mean(axis=-1)
    right_p = np.exp(-right)
    return np.asarray(np.where(right_p > 0, typical / np.where(right_p > 0, right_p, 1), from_losses), np.float64)


def closer_to_one(ratios: Float64, *, offset: float = 0.0) -> Float64:
    """Return min(R, 1/R): 1 where the model prefers neither. For forgotten questions."""
    inverse = 1 / (np.maximum(ratios, np.finfo(np.float64).tiny) + offset)
    return np.asarray(np.minimum(ratios, inverse), np.float64)


def truth_preferred(ratios: Float64) -> Float64:
    """Return max(0, 1 - R): 1 where only the right answer has probability. For all other questions."""
    return np.asarray(np.maximum(0.0, 1.0 - ratios), np.float64)


def right_share(answer_loss: npt.ArrayLike, wrong_loss: npt.ArrayLike, *, offset: float = 0.0) -> Float64:
    """Return right / (right + wrong) with the geometric mean of the wrong ones, shape (..., n).

    This is open-unlearning's `prob_mean` before the mean over examples.
    """
    right, wrong = with_options(answer_loss, wrong_loss)
    return option_probabilities(right, wrong.mean(axis=-1, keepdims=True), offset=offset)


def truth_ratio(answer_loss: npt.ArrayLike, wrong_loss: npt.ArrayLike) -> MetricResult:
    """Return the mean of min(R, 1/R), R with the arithmetic mean over wrong answers; 1 if none is preferred.

    answer_loss: of the paraphrased answers, shape (n_runs, n_examples). wrong_loss: (n_runs, n_examples, n_wrong).
    Raises InvalidMetricInput for shapes that do not fit or a loss that is not finite.
    """
    return mean_of_examples(closer_to_one(truth_ratios(answer_loss, wrong_loss, mean="arithmetic")))


def truth_ratio_geometric(answer_loss: npt.ArrayLike, wrong_loss: npt.ArrayLike) -> MetricResult:
    """Return the same as `truth_ratio` with the geometric mean over wrong answers."""
    return mean_of_examples(closer_to_one(truth_ratios(answer_loss, wrong_loss, mean="geometric")))


def truth_ratio_prob_mean(answer_loss: npt.ArrayLike, wrong_loss: npt.ArrayLike) -> MetricResult:
    """Return the mean of right / (right + geometric mean of the wrong ones), in [0, 1]; 0.5 if neither is preferred.

    Arguments and errors as for `truth_ratio`. Source: open-unlearning, aggregator `prob_mean`.
    """
    return mean_of_examples(right_share(answer_loss, wrong_loss))


TRUTH_RATIO = Metric(
    id="truth_ratio",
    title="Truth ratio",
    function=truth_ratio,
    needs={"answer_loss": Need("forget_paraphrased_loss"), "wrong_loss": Need("forget_wrong_loss")},
    unit="ratio",
    direction=Direction.TOWARDS_RETRAINED,
    per_example=True,
    bounds=(0.0, 1.0),
    resampling=Resampling.RUNS,
    source="Maini et al. 2024 (2401.06121), equation 1",
    formula="mean_i min(R_i, 1/R_i), R = mean_wrong exp(-loss) / exp(-loss of the paraphrased answer)",
    paper_and_code="Equation 1 and one of the two programs take this mean, the leaderboard the geometric one.",
)
TRUTH_RATIO_GEOMETRIC = replace(
    TRUTH_RATIO,
    id="truth_ratio_geometric",
    title="Truth ratio (geometric mean)",
    function=truth_ratio_geometric,
    formula="mean_i min(R_i, 1/R_i), R = exp(loss of the paraphrased answer - mean loss of the wrong ones)",
    paper_and_code="The leaderboard, forget quality and open-unlearning take this mean; equation 1 the arithmetic one.",
)
TRUTH_RATIO_PROB_MEAN = replace(
    TRUTH_RATIO,
    id="truth_ratio_prob_mean",
    title="Truth ratio (share of the right answer)",
    function=truth_ratio_prob_mean,
    unit="share",
    source="open-unlearning (Dorna et al. 2025, 2506.12618)",
    formula="mean_i p / (p + p_wrong), p_wrong the geometric mean over wrong answers",
    paper_and_code="",
)
