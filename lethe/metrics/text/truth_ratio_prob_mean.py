"""The right answer's share of the probability of right and wrong ones, on the forget set."""

import numpy.typing as npt

from lethe.metrics.registry import Direction, Metric, Need, Resampling
from lethe.metrics.result import MetricResult
from lethe.metrics.text.per_run import mean_of_examples
from lethe.metrics.text.truth_ratios import right_share


def truth_ratio_prob_mean(answer_loss: npt.ArrayLike, wrong_loss: npt.ArrayLike) -> MetricResult:
    """Return the mean of right / (right + wrong), in [0, 1]; 0.5 if neither is preferred.

    answer_loss: of the paraphrased answers, shape (n_runs, n_examples). wrong_loss: (n_runs, n_examples, n_wrong),
    of which the geometric mean is taken. Raises InvalidMetricInput for a loss that is not finite.
    Source: open-unlearning, aggregator `prob_mean`.
    """
    return mean_of_examples(right_share(answer_loss, wrong_loss))


METRIC = Metric(
    id="truth_ratio_prob_mean",
    title="Truth ratio (share of the right answer)",
    function=truth_ratio_prob_mean,
    needs={"answer_loss": Need("forget_paraphrased_loss"), "wrong_loss": Need("forget_wrong_loss")},
    unit="share",
    direction=Direction.TOWARDS_RETRAINED,
    per_example=True,
    bounds=(0.0, 1.0),
    resampling=Resampling.RUNS,
    source="open-unlearning (Dorna et al. 2025, 2506.12618)",
    formula="mean_i p / (p + p_wrong), p_wrong the geometric mean over wrong answers",
)
