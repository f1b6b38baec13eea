"""How probable the model still finds the forgotten answers, and how much of them it still writes."""

from dataclasses import replace

import numpy.typing as npt

from lethe.metrics.core.registry import Direction, Metric, Need, Resampling
from lethe.metrics.core.result import MetricResult
from lethe.metrics.text.per_run import mean_of_examples
from lethe.metrics.text.probabilities import answer_probabilities


def answer_probability(answer_loss: npt.ArrayLike) -> MetricResult:
    """Return the mean probability per token of the forgotten answers, in [0, 1].

    answer_loss: shape (n_runs, n_examples), nats per token.
    Source: Maini et al. 2024 (TOFU), section 2.2.1.
    """
    return mean_of_examples(answer_probabilities(answer_loss))


ANSWER_PROBABILITY = Metric(
    id="answer_probability",
    title="Answer probability",
    function=answer_probability,
    needs={"answer_loss": Need("forget_answer_loss")},
    unit="probability per token",
    direction=Direction.TOWARDS_RETRAINED,
    per_example=True,
    bounds=(0.0, 1.0),
    resampling=Resampling.RUNS,
    source="Maini et al. 2024 (2401.06121), section 2.2.1",
    formula="mean_i exp(-mean loss of the tokens of answer i)",
    paper_and_code="The text has P(a|q), the table and the program P(a|q)^(1/|a|); the program's is used.",
)


def answer_rouge(rouge_recall: npt.ArrayLike) -> MetricResult:
    """Return the mean ROUGE-L recall of greedily generated answers, in [0, 1].

    rouge_recall: shape (n_runs, n_examples), from `lethe.metrics.text.rouge.rouge_l_recalls`.
    Source: Maini et al. 2024 (TOFU), section 2.2.1.
    """
    return mean_of_examples(rouge_recall)


ANSWER_ROUGE = replace(
    ANSWER_PROBABILITY,
    id="answer_rouge",
    title="ROUGE-L recall of answers",
    function=answer_rouge,
    needs={"rouge_recall": Need("forget_rouge_recall")},
    unit="share of the answer's words",
    source="Maini et al. 2024 (2401.06121), section 2.2.1; Lin 2004",
    formula="mean_i LCS(answer_i, generated_i) / |answer_i|, words stemmed",
    paper_and_code="",
)
