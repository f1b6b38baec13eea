"""Truth ratio: how likely wrong answers are compared with the right one, on the forget set."""

import numpy.typing as npt

from lethe.metrics.core.registry import Direction, Metric, Need, Resampling
from lethe.metrics.core.result import MetricResult
from lethe.metrics.text.per_run import mean_of_examples
from lethe.metrics.text.truth_ratios import closer_to_one, right_share, truth_ratios


def truth_ratio(answer_loss: npt.ArrayLike, wrong_loss: npt.ArrayLike) -> MetricResult:
    """Return the mean of min(R, 1/R), R with the arithmetic mean over wrong answers; 1 if none is preferred.

    answer_loss: of the paraphrased answers, shape (n_runs, n_examples). wrong_loss: (n_runs, n_examples, n_wrong).
    Raises InvalidMetricInput for shapes that do not fit or a loss that is not finite.
    Source: Maini et al. 2024 (TOFU), equation 1.
    """
    return mean_of_examples(closer_to_one(truth_ratios(answer_loss, wrong_loss, mean="arithmetic")))


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


def truth_ratio_geometric(answer_loss: npt.ArrayLike, wrong_loss: npt.ArrayLike) -> MetricResult:
    """Return the mean of min(R, 1/R), R with the geometric mean over wrong answers; 1 if none is preferred.

    answer_loss: of the paraphrased answers, shape (n_runs, n_examples). wrong_loss: (n_runs, n_examples, n_wrong).
    Raises InvalidMetricInput for shapes that do not fit or a loss that is not finite.
    Source: Maini et al. 2024 (TOFU), equation 1.
    """
    return mean_of_examples(closer_to_one(truth_ratios(answer_loss, wrong_loss, mean="geometric")))


TRUTH_RATIO_GEOMETRIC = Metric(
    id="truth_ratio_geometric",
    title="Truth ratio (geometric mean)",
    function=truth_ratio_geometric,
    needs={"answer_loss": Need("forget_paraphrased_loss"), "wrong_loss": Need("forget_wrong_loss")},
    unit="ratio",
    direction=Direction.TOWARDS_RETRAINED,
    per_example=True,
    bounds=(0.0, 1.0),
    resampling=Resampling.RUNS,
    source="Maini et al. 2024 (2401.06121), equation 1",
    formula="mean_i min(R_i, 1/R_i), R = exp(loss of the paraphrased answer - mean loss of the wrong ones)",
    paper_and_code="The leaderboard, forget quality and open-unlearning take this mean; equation 1 the arithmetic one.",
)


def truth_ratio_prob_mean(answer_loss: npt.ArrayLike, wrong_loss: npt.ArrayLike) -> MetricResult:
    """Return the mean of right / (right + wrong), in [0, 1]; 0.5 if neither is preferred.

    answer_loss: of the paraphrased answers, shape (n_runs, n_examples). wrong_loss: (n_runs, n_examples, n_wrong),
    of which the geometric mean is taken. Raises InvalidMetricInput for a loss that is not finite.
    Source: open-unlearning, aggregator `prob_mean`.
    """
    return mean_of_examples(right_share(answer_loss, wrong_loss))


TRUTH_RATIO_PROB_MEAN = Metric(
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
