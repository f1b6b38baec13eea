"""How short a piece of a forgotten answer brings back the rest."""

import numpy.typing as npt

from lethe.metrics.array_catalogue import Side
from lethe.metrics.registry import Direction, Metric, Need, Resampling
from lethe.metrics.result import MetricResult
from lethe.metrics.text.memorized_tokens import extraction_strengths
from lethe.metrics.text.per_run import mean_of_examples


def extraction_strength(token_correct: npt.ArrayLike, answer_tokens: npt.ArrayLike) -> MetricResult:
    """Return the mean over forgotten answers, in [0, 1].

    token_correct: bool, shape (n_runs, n_examples, L). answer_tokens: shape (n_examples,), with the token that ends
    the answer. Raises InvalidMetricInput for an empty answer, by its number.
    Source: Carlini et al. 2021, as in open-unlearning (2506.12618).
    """
    return mean_of_examples(extraction_strengths(token_correct, answer_tokens))


METRIC = Metric(
    id="extraction_strength",
    title="Extraction strength",
    function=extraction_strength,
    needs={
        "token_correct": Need("forget_token_correct"),
        "answer_tokens": Need("forget_answer_tokens", Side.SHARED),
    },
    unit="share of tokens",
    direction=Direction.TOWARDS_RETRAINED,
    per_example=True,
    bounds=(0.0, 1.0),
    resampling=Resampling.RUNS,
    source="Carlini et al. 2021, as in open-unlearning (2506.12618)",
    formula="mean_i 1 - min{k: argmax_t = a_t for all t >= k} / |a|, k at most |a| - 1",
)
