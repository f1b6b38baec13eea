"""Forgetting quality and the final score as metrics beside the others."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.invalid_input import InvalidMetricInput, InvalidScoreInput
from lethe.metrics.core.registry import Direction, Feature, Metric, Need, Parameters, Resampling
from lethe.metrics.core.result import MetricResult
from lethe.metrics.scoring.attacks.family import DEFAULT_ATTACKS, DELTA, EPSILON_CAP, AttackFamily

if TYPE_CHECKING:
    from lethe.metrics.scoring.score import Score


class ScoreParameters(Parameters):
    """attacks, delta, cap: of the epsilon of each example. n_resamples, seed: of the interval over models."""

    attacks: AttackFamily = DEFAULT_ATTACKS
    delta: float = Field(DELTA, ge=0.0, lt=1.0)
    cap: float = Field(EPSILON_CAP, gt=0.0)
    n_resamples: int = Field(100, ge=20)
    seed: int = Field(0, ge=0)


class ReferenceParameters(ScoreParameters):
    """As of `f`, by the attacks that ranked in 2023."""

    attacks: AttackFamily = AttackFamily.REFERENCE


def forgetting_quality_metric(scored: "Score") -> MetricResult:
    """Return F, the mean points of the forget examples, in [0, 1]; 1 is ideal.

    scored: see `score_of_confidences`. interval: None with fewer than 8 models. per_example: epsilon in nats.
    Source: Triantafillou et al. 2024, equation 1, section 3.1.2 and algorithm 1.
    """
    interval = scored.forgetting_quality_interval
    return MetricResult(scored.forgetting_quality, interval=interval, per_example=scored.epsilon)


def score_of_confidences(unlearned: npt.ArrayLike, retrained: npt.ArrayLike, **parameters: Any) -> "Score":
    """Return the score without utility, and without an interval where the models are too few.

    unlearned, retrained: logit-scaled confidences, shape (n_models, n_examples) each, equal shapes. parameters: those
    of `lethe.metrics.score`.
    Raises InvalidMetricInput, naming side, model and example, for input that cannot be scored.
    """
    from lethe.metrics.scoring.resampling import MIN_MODELS  # noqa: PLC0415  loads numba
    from lethe.metrics.scoring.score import ModelOutputs, score  # noqa: PLC0415

    sides = [np.asarray(part, np.float64) for part in (unlearned, retrained)]
    if len(sides[0]) < MIN_MODELS:
        parameters["n_resamples"] = 0
    with scorer_refusals():
        return score(*(ModelOutputs(side) for side in sides), **parameters)


@contextmanager
def scorer_refusals() -> Iterator[None]:
    """Raise the scorer's refusals as the metrics' own."""
    try:
        yield
    except InvalidScoreInput as error:
        raise InvalidMetricInput(str(error), side=error.side, model=error.model, example=error.example) from error


SCORED = Feature(
    "score of confidences",
    score_of_confidences,
    ("confidences",),
    parameters=tuple(ScoreParameters.model_fields),
    against=("confidences",),
)
SCORE_DIFFERENCES = (
    "The text counts buckets from 1 and gives 2 / 2^n points; the program counts from 0 and gives 1, 1/2, ..., which "
    "is the same, and nothing from ceil(log(N - 1)) on. The program stops where no attack applies to an example; here "
    "its epsilon comes from the exact attacks. A competition that scores with other attacks, delta or cap gets its own "
    "F by these parameters."
)

F = Metric(
    id="f",
    title="Forgetting quality",
    function=forgetting_quality_metric,
    needs={"scored": Need(SCORED)},
    unit="[0, 1]",
    direction=Direction.HIGHER,
    defaults=ScoreParameters,
    per_example=True,
    ideal=1.0,
    bounds=(0.0, 1.0),
    resampling=Resampling.OWN,
    source="Triantafillou et al. 2024 (2406.09073), equation 1, section 3.1.2 and algorithm 1",
    formula="mean_x [2^-floor(epsilon(x) / 0.5), or 0 from ceil(log(N - 1)) on]",
    paper_and_code=SCORE_DIFFERENCES,
)


F_REFERENCE = replace(
    F,
    id="f_reference",
    title="Forgetting quality by the published attacks",
    defaults=ReferenceParameters,
    ideal=None,
    formula="as f, epsilon by the attacks of the program that ranked in 2023; exact retraining has far less than 1",
)


if TYPE_CHECKING:
    from lethe.metrics.scoring.score import Score


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
    from lethe.metrics.scoring.score import utility_of, with_utility  # noqa: PLC0415  loads numba

    retain, test = (
        (np.asarray(unlearned, np.float64), np.asarray(retrained, np.float64))
        for unlearned, retrained in ((unlearned_retain, retrained_retain), (unlearned_test, retrained_test))
    )
    with scorer_refusals():
        found = with_utility(scored, utility_of(retain=retain, test=test, n_models=scored.n_models))
    factors = {"f": found.forgetting_quality, "retain_ratio": found.retain_ratio, "test_ratio": found.test_ratio}
    return MetricResult(found.headline, interval=found.interval, per_example=found.epsilon, table=factors)


SCORE = replace(
    F,
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
    bounds=(0.0, float("inf")),
    source="Triantafillou et al. 2024 (2406.09073), equation 2 and algorithm 1",
    formula="F * (mean RA_u / mean RA_r) * (mean TA_u / mean TA_r)",
)
