"""Forgetting quality without its dependence on N: the shift of a known distribution that would give the same F."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.registry import Metric, Need, Resampling
from lethe.metrics.core.result import MetricResult
from lethe.metrics.forgetting.final_score import SCORED, ScoreParameters, scorer_refusals
from lethe.metrics.scoring.attacks.family import AttackFamily
from lethe.metrics.scoring.sample_size import few_models_warnings, smallest_detectable_shift

if TYPE_CHECKING:
    from lethe.metrics.scoring.score import Score

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
def _normal_curve(n_models: int, settings: Settings, seed: int) -> tuple[float, ...]:
    rng = np.random.default_rng([CURVE_SEED, n_models])
    u, r = rng.normal(size=(2, n_models, CURVE_EXAMPLES))
    return tuple(_curve(lambda shift: (u + shift, r), settings, seed))


def normal_curve(n_models: int, settings: Settings, seed: int = 0) -> Float64:
    """Return F of the normal model at this N for every shift of `SHIFTS`, never rising; kept for the next call."""
    return np.array(_normal_curve(n_models, settings, seed))


def _curve(sides: Callable[[float], tuple[Float64, Float64]], settings: Settings, seed: int) -> Float64:
    from lethe.metrics.scoring.epsilon import per_example_epsilon  # noqa: PLC0415  loads numba
    from lethe.metrics.scoring.forgetting_quality import forgetting_quality, n_judged_models  # noqa: PLC0415

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


METRIC = Metric(
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
    METRIC,
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
