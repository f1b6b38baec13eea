"""How much of the forgotten answers the model still writes."""

import numpy.typing as npt

from lethe.metrics.arrays import shares
from lethe.metrics.registry import Direction, Metric, Need, Resampling
from lethe.metrics.result import MetricResult
from lethe.metrics.text.per_run import mean_of_examples


def answer_rouge(rouge_recall: npt.ArrayLike) -> MetricResult:
    """Return the mean ROUGE-L recall of greedily generated answers, in [0, 1].

    rouge_recall: shape (n_runs, n_examples), from `lethe.metrics.text.rouge.rouge_l_recalls`.
    Source: Maini et al. 2024 (TOFU), section 2.2.1.
    """
    rows = shares(rouge_recall, axes=("models", "examples"), name="ROUGE recalls", side="unlearned")
    return mean_of_examples(rows)


METRIC = Metric(
    id="answer_rouge",
    title="ROUGE-L recall of answers",
    function=answer_rouge,
    needs={"rouge_recall": Need("forget_rouge_recall")},
    unit="share of the answer's words",
    direction=Direction.TOWARDS_RETRAINED,
    per_example=True,
    bounds=(0.0, 1.0),
    resampling=Resampling.RUNS,
    source="Maini et al. 2024 (2401.06121), section 2.2.1; Lin 2004",
    formula="mean_i LCS(answer_i, generated_i) / |answer_i|, words stemmed",
)
