"""Forgetting quality and the final score as metrics beside the others: histogram, equivalent shift."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.invalid_input import InvalidMetricInput, InvalidScoreInput
from lethe.metrics.core.registry import Direction, Feature, Metric, Need, Parameters, Resampling
from lethe.metrics.core.result import MetricResult
from lethe.metrics.scoring.attacks.family import (
    DEFAULT_ATTACKS,
    DELTA,
    EPSILON_CAP,
    AttackFamily,
    few_models_warnings,
    smallest_detectable_shift,
)

if TYPE_CHECKING:
    from lethe.metrics.scoring.score import Score

PERCENTILES = (5, 25, 50, 75, 95, 100)


class EpsilonHistogramParameters(Parameters):
    """bin_width: in nats. cap: the epsilon given to an example that an attack tells apart without error."""

    bin_width: float = Field(0.5, gt=0.0)
    cap: float = Field(50.0, gt=0.0)


def epsilon_histogram(epsilon: Float64, n_models: int, *, bin_width: float = 0.5, cap: float = 50.0) -> MetricResult:
    """Return the median epsilon in nats, with the histogram, percentiles and the share at the cap.

    epsilon: shape (n_examples,), >= 0. n_models: models on each side, > 2. The bins cover [0, ceil(log(N - 1))]; the
    last one also takes what lies above it and below the cap; examples at the cap are counted apart.
    """
    top = float(largest_epsilon(int(n_models)))
    edges = np.arange(0.0, top + bin_width / 2.0, bin_width)
    below = epsilon[epsilon < cap]
    counts = np.histogram(np.minimum(below, edges[-1]), bins=edges)[0]
    table: dict[str, float] = {f"percentile_{p}": float(np.percentile(epsilon, p)) for p in PERCENTILES}
    table["share_above_4"] = float(np.mean(epsilon > 4.0))
    table["share_at_cap"] = float(np.mean(epsilon >= cap))
    return MetricResult(
        float(np.median(epsilon)),
        per_example=epsilon,
        table=table,
        arrays={"edges": edges, "counts": counts, "at_cap": np.asarray(epsilon.size - below.size)},
    )


def largest_epsilon(n_models: int) -> int:
    """Return ceil(log(N - 1)), which no epsilon estimated from N models a side exceeds but the cap."""
    if n_models < 3:
        raise InvalidMetricInput(f"epsilon needs at least 3 models on each side, not {n_models}")
    return math.ceil(math.log(n_models - 1))


METRIC = Metric(
    title="Epsilon per example",
    function=epsilon_histogram,
    needs={"epsilon": Need("epsilon"), "n_models": Need("n_models", Side.SHARED)},
    unit="nats (median)",
    defaults=EpsilonHistogramParameters,
    per_example=True,
    ideal=0.0,
    bounds=(0.0, float("inf")),
    source="Triantafillou et al. 2024 (2406.09073), appendix A.9, figure 13",
    formula="median over examples of epsilon; histogram in bins of 0.5 on [0, ceil(log(N - 1))], a bar at the cap",
)


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


SHIFTS = np.concatenate((np.arange(0.0, 1.0, 0.1), np.arange(1.0, 6.01, 0.5)))
CURVE_EXAMPLES = 1000
CURVE_SEED = 2026
Settings = tuple[AttackFamily, float, float]


def equivalent_shift(scored: "Score", *, seed: int = 0) -> MetricResult:
    """Return the shift, in standard deviations, at which normal confidences would have this F at this N; 0 is ideal.

    scored: see `score_of_confidences`. Every example of the model has N(0, 1) retrained and N(shift, 1) unlearned
    confidences. interval: that of F, read from the same curve. table: N, the curve's F without a shift, and the
    smallest shift that so many models detect for one example. A value beyond the curve is its end, with a note.
    Source: defined by Lethe; compared with other metrics in docs/organisers/metrics.md.
    """
    curve = normal_curve(scored.n_models, (scored.attacks, scored.delta, scored.cap), seed)
    return _read(scored, curve)


def equivalent_shift_oracle(scored: "Score", oracle: Float64, retrained: Float64, *, seed: int = 0) -> MetricResult:
    """Return the same with the split's own models: the oracle's confidences, shifted, against the retrained ones.

    oracle, retrained: confidences, shapes (n_models, n_examples), equal. The shift of an example is in its standard
    deviations over the retrained models. The oracle itself has 0.
    """
    deviation = retrained.std(axis=0)
    settings = scored.attacks, scored.delta, scored.cap
    with scorer_refusals():
        curve = _curve(lambda shift: (oracle + shift * deviation, retrained), settings, seed)
    return _read(scored, curve)


@lru_cache(maxsize=32)
def normal_curve(n_models: int, settings: Settings, seed: int = 0) -> Float64:
    """Return F of the normal model at this N for every shift of `SHIFTS`, never rising; kept for the next call."""
    u, r = np.random.default_rng([CURVE_SEED, n_models]).normal(size=(2, n_models, CURVE_EXAMPLES))
    return _curve(lambda shift: (u + shift, r), settings, seed)


def _curve(sides: Callable[[float], tuple[Float64, Float64]], settings: Settings, seed: int) -> Float64:
    from lethe.metrics.scoring.epsilon import forgetting_quality, n_judged_models, per_example_epsilon  # noqa: PLC0415  loads numba

    attacks, delta, cap = settings
    found = []
    for shift in SHIFTS:
        u, r = sides(float(shift))
        epsilon = per_example_epsilon(u, r, attacks=attacks, delta=delta, cap=cap, seed=seed)
        found.append(forgetting_quality(epsilon, n_models=n_judged_models(len(u), attacks=attacks)))
    return np.minimum.accumulate(np.array(found))


def shift_of(quality: float, curve: Float64) -> float:
    """Return where the falling curve has this F, linear between its points; 0 above it, the last shift below it."""
    if quality < curve[-1]:
        return float(SHIFTS[-1])
    falls = np.append(True, np.diff(curve) < 0.0)  # of a level stretch its smallest shift
    return float(np.interp(-quality, -curve[falls], SHIFTS[falls]))


def _read(scored: "Score", curve: Float64) -> MetricResult:
    n_models, interval = scored.n_models, scored.forgetting_quality_interval
    table = {
        "n_models": n_models,
        "f_without_shift": float(curve[0]),
        "smallest_detectable_shift": smallest_detectable_shift(n_models),
    }
    notes = list(few_models_warnings(n_models))
    if scored.forgetting_quality < curve[-1]:
        notes.append(f"F is below the curve's end: the shift is at least {SHIFTS[-1]:g}")
    return MetricResult(
        shift_of(scored.forgetting_quality, curve),
        interval=None if interval is None else (shift_of(interval[1], curve), shift_of(interval[0], curve)),
        table=table,
        notes=tuple(notes),
    )


EQUIVALENT_SHIFT = Metric(
    title="Equivalent shift (normal model)",
    function=equivalent_shift,
    needs={"scored": Need(SCORED)},
    unit="standard deviations",
    defaults=ScoreParameters,
    bounds=(0.0, float(SHIFTS[-1])),
    resampling=Resampling.OWN,
    source="defined by Lethe",
    formula="the shift d with F_N( N(d, 1) against N(0, 1) ) = F, F_N the forgetting quality of N models a side",
)

BY_ORACLE = replace(
    EQUIVALENT_SHIFT,
    id="equivalent_shift_oracle",
    title="Equivalent shift (the oracle's models)",
    function=equivalent_shift_oracle,
    needs={
        "scored": Need(SCORED),
        "oracle": Need("confidences", Side.ORACLE),
        "retrained": Need("confidences", Side.RETRAINED),
    },
    formula="the shift d with F( oracle + d sd, retrained ) = F, sd of every example over retrained models",
)
