"""The final score as a metric beside the others."""

import numpy as np
import numpy.typing as npt

from lethe.metrics.array_catalogue import Side
from lethe.metrics.epsilon.attacks.family import DELTA, EPSILON_CAP, AttackFamily
from lethe.metrics.forgetting_quality import CONFIDENCE_NEEDS, SCORE_DIFFERENCES, ScoreParameters, checked_score
from lethe.metrics.registry import Direction, Metric, Need, Resampling
from lethe.metrics.result import MetricResult


def final_score(
    *,
    unlearned: npt.ArrayLike,
    retrained: npt.ArrayLike,
    unlearned_retain: npt.ArrayLike,
    unlearned_test: npt.ArrayLike,
    retrained_retain: npt.ArrayLike,
    retrained_test: npt.ArrayLike,
    attacks: AttackFamily = AttackFamily.REFERENCE,
    delta: float = DELTA,
    cap: float = EPSILON_CAP,
    n_resamples: int = 100,
    seed: int = 0,
) -> MetricResult:
    """Return forgetting quality times the ratios of retain and test accuracy to the retrained models'; 1 is ideal.

    unlearned, retrained: logit-scaled confidences, shape (n_models, n_examples) each, equal shapes. The others:
    accuracies, shape (n_models,), in [0, 1]; a ratio is not cut off at 1. The parameters are those of
    `lethe.metrics.score`. interval: None with fewer than 8 models. table: the three factors.
    Raises InvalidMetricInput, naming side, model and example, for input that cannot be scored.
    Source: Triantafillou et al. 2024, equation 2 and algorithm 1.
    """
    from lethe.metrics.epsilon.score import ModelOutputs  # noqa: PLC0415  loads numba

    found = checked_score(
        ModelOutputs(*(np.asarray(part, np.float64) for part in (unlearned, unlearned_retain, unlearned_test))),
        ModelOutputs(*(np.asarray(part, np.float64) for part in (retrained, retrained_retain, retrained_test))),
        ScoreParameters(attacks=attacks, delta=delta, cap=cap, n_resamples=n_resamples, seed=seed),
    )
    factors = {"f": found.forgetting_quality, "retain_ratio": found.retain_ratio, "test_ratio": found.test_ratio}
    return MetricResult(found.headline, interval=found.interval, per_example=found.epsilon, table=factors)


METRIC = Metric(
    id="score",
    title="Final score",
    function=final_score,
    needs={
        **CONFIDENCE_NEEDS,
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
