"""Share of the forgotten answers' tokens that are the model's first choice."""

import numpy.typing as npt

from lethe.metrics.array_catalogue import Side
from lethe.metrics.registry import Direction, Metric, Need, Resampling
from lethe.metrics.result import MetricResult
from lethe.metrics.text.memorized_tokens import exact_memorization_shares
from lethe.metrics.text.per_run import mean_of_examples


def exact_memorization(token_correct: npt.ArrayLike, answer_tokens: npt.ArrayLike) -> MetricResult:
    """Return the mean over forgotten answers, in [0, 1].

    token_correct: bool, shape (n_runs, n_examples, L). answer_tokens: shape (n_examples,), with the token that ends
    the answer. Raises InvalidMetricInput for an empty answer, by its number.
    Source: Tirumala et al. 2022, as in open-unlearning (2506.12618).
    """
    return mean_of_examples(exact_memorization_shares(token_correct, answer_tokens))


METRIC = Metric(
    id="exact_memorization",
    title="Exact memorisation",
    function=exact_memorization,
    needs={
        "token_correct": Need("forget_token_correct"),
        "answer_tokens": Need("forget_answer_tokens", Side.SHARED),
    },
    unit="share of tokens",
    direction=Direction.TOWARDS_RETRAINED,
    per_example=True,
    bounds=(0.0, 1.0),
    resampling=Resampling.RUNS,
    source="Tirumala et al. 2022, as in open-unlearning (2506.12618)",
    formula="mean_i |{t: argmax_t = a_t}| / |a|, without the last token",
)
