"""The final score as a metric beside the others."""

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lethe.metrics.array_catalogue import Side
from lethe.metrics.forgetting_quality import SCORE_DIFFERENCES, SCORED, ScoreParameters, scorer_refusals
from lethe.metrics.registry import Direction, Metric, Need, Resampling
from lethe.metrics.result import MetricResult

if TYPE_CHECKING:
    from lethe.metrics.epsilon.score import Score


def final_score(
    *,
    scored: "Score",
    unlearned_retain: npt.ArrayLike,
    unlearned_test: npt.ArrayLike,
    retrained_retain: npt.ArrayLike,
    retrained_test: npt.ArrayLike,
) -> MetricResult:
    """Return forgetting quality times the ratios of retain and test accuracy to the retrained models'; 1 is ideal.

    scored: the score of the same models without utility, see `score_of_confidences`. The others: accuracies, shape
    (n_models,), in [0, 1]; a ratio is not cut off at 1. interval: None with fewer than 8 models. table: the factors.
    Raises InvalidMetricInput, naming side and model, for accuracies that cannot be compared.
    Source: Triantafillou et al. 2024, equation 2 and algorithm 1.
    """
    from lethe.metrics.epsilon.score import utility_of, with_utility  # noqa: PLC0415  loads numba

    retain, test = (
        (np.asarray(unlearned, np.float64), np.asarray(retrained, np.float64))
        for unlearned, retrained in ((unlearned_retain, retrained_retain), (unlearned_test, retrained_test))
    )
    with scorer_refusals():
        found = with_utility(scored, utility_of(retain=retain, test=test, n_models=scored.n_models))
    factors = {"f": found.forgetting_quality, "retain_ratio": found.retain_ratio, "test_ratio": found.test_ratio}
    return MetricResult(found.headline, interval=found.interval, per_example=found.epsilon, table=factors)


METRIC = Metric(
    id="score",
    title="Final score",
    function=final_score,
    needs={
        "scored": Need(SCORED),
        **{
            f"{side}_{part}": Need(f"{part}_accuracy", side)
            for side in (Side.UNLEARNED, Side.RETRAINED)
            for part in ("retain", "test")
        },
    },
    unit="ratio",
    direction=Direction.HIGHER,
    defaults=ScoreParameters,
    per_example=True,
    ideal=1.0,
    bounds=(0.0, float("inf")),
    resampling=Resampling.OWN,
    source="Triantafillou et al. 2024 (2406.09073), equation 2 and algorithm 1",
    formula="F * (mean RA_u / mean RA_r) * (mean TA_u / mean TA_r)",
    paper_and_code=SCORE_DIFFERENCES,
)
