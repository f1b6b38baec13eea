"""Whether intervals cover and tests err as often as they say: `python -m benchmarks.scoring.coverage`."""

import math
from collections.abc import Callable

import numpy as np

from lethe.metrics.scoring.arrays import Float64
from lethe.metrics.scoring.attacks.family import DELTA, EPSILON_CAP, AttackFamily
from lethe.metrics.scoring.epsilon import epsilon_of_sorted
from lethe.metrics.scoring.forgetting_quality import forgetting_quality
from lethe.metrics.scoring.paired_test import ScoredEntry, compare
from lethe.metrics.scoring.samples import resampled, sort_samples
from lethe.metrics.scoring.score import ModelOutputs, score

N_MODELS, N_EXAMPLES, N_RESAMPLES, N_TRIALS = 128, 30, 40, 100
Draw = Callable[[np.random.Generator, bool], Float64]


def normal_models(*, shift: float, scale: float, shared: float) -> Draw:
    """Return a draw of confidences: unlearned models shifted and scaled against retrained ones.

    shared: share of a model's variance that all examples have in common.
    """
    difficulty = np.linspace(-3.0, 6.0, N_EXAMPLES)

    def draw(rng: np.random.Generator, unlearned: bool) -> Float64:
        common = rng.normal(size=(N_MODELS, 1))
        own = rng.normal(size=(N_MODELS, N_EXAMPLES))
        noise = 2.0 * (math.sqrt(shared) * common + math.sqrt(1.0 - shared) * own)
        return np.asarray(difficulty + (shift + scale * noise if unlearned else noise), dtype=np.float64)

    return draw


CASES = {
    "oracle": normal_models(shift=0.0, scale=1.0, shared=0.0),
    "oracle, correlated examples": normal_models(shift=0.0, scale=1.0, shared=0.3),
    "shift 0.5 sd": normal_models(shift=1.0, scale=1.0, shared=0.1),
    "shift 1 sd": normal_models(shift=2.0, scale=1.0, shared=0.1),
    "half as wide": normal_models(shift=0.0, scale=0.5, shared=0.1),
}


def percentile_interval(
    unlearned: Float64, retrained: Float64, rng: np.random.Generator, family: AttackFamily
) -> tuple[float, float]:
    """Return the ordinary bootstrap's 95 % percentile interval of F, for comparison."""
    sides = sort_samples(unlearned), sort_samples(retrained)
    values = []
    for _ in range(N_RESAMPLES):
        repeats = [np.bincount(rng.integers(0, N_MODELS, N_MODELS), minlength=N_MODELS) for _ in sides]
        rows = [resampled(side, count) for side, count in zip(sides, repeats, strict=True)]
        epsilon = epsilon_of_sorted(*rows, attacks=family, delta=DELTA, cap=EPSILON_CAP)
        values.append(forgetting_quality(epsilon, n_models=N_MODELS))
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)


def coverage(name: str, draw: Draw, family: AttackFamily) -> None:
    """Print coverage of the mean score of fresh models by both intervals, and standard error over the true one."""
    rng = np.random.default_rng(11)
    trials = [(draw(rng, True), draw(rng, False)) for _ in range(N_TRIALS)]
    found = [
        score(ModelOutputs(u), ModelOutputs(r), attacks=family, n_resamples=N_RESAMPLES, seed=k)
        for k, (u, r) in enumerate(trials)
    ]
    values = np.array([one.headline for one in found])
    ours = [one.interval for one in found if one.interval is not None]
    errors = np.array([(high - one.headline) / 1.96 for one, (_, high) in zip(found, ours, strict=True)])
    line = f"  {family:12s} {name:28s} F {values.mean():.4f}, sd {values.std(ddof=1):.5f}, "
    line += (
        f"mean standard error / sd {errors.mean() / values.std(ddof=1):.2f}, covered {covered(ours, values.mean()):.2f}"
    )
    if family is not AttackFamily.DISENTANGLED:
        naive = [percentile_interval(u, r, rng, family) for u, r in trials[:30]]
        line += f" (bootstrap percentiles {covered(naive, values.mean()):.2f})"
    print(line, flush=True)


def covered(intervals: list[tuple[float, float]], truth: float) -> float:
    """Return the share of intervals that hold the truth."""
    return float(np.mean([low <= truth <= high for low, high in intervals]))


def false_differences(name: str, draw: Draw, family: AttackFamily) -> None:
    """Print how often one method, run twice against the same retrained models, is called different at 5 %."""
    rng = np.random.default_rng(12)
    wrong = 0
    for trial in range(N_TRIALS):
        retrained = ModelOutputs(draw(rng, False))
        standings = []
        for _ in range(2):
            found = score(ModelOutputs(draw(rng, True)), retrained, attacks=family, n_resamples=N_RESAMPLES, seed=trial)
            assert found.replicates is not None
            standings.append(ScoredEntry(found.headline, found.replicates))
        wrong += compare(*standings).p_value < 0.05
    print(f"  {family:12s} {name:28s} {wrong / N_TRIALS:.3f}", flush=True)


if __name__ == "__main__":
    print(f"95 % intervals, N = {N_MODELS}, S = {N_EXAMPLES}, {N_RESAMPLES} resamples, {N_TRIALS} trials")
    for family in AttackFamily:
        for name, draw in CASES.items():
            coverage(name, draw, family)
    print("false differences of the paired test at 5 %")
    for family in (AttackFamily.REFERENCE, AttackFamily.EXACT):
        for name, draw in CASES.items():
            false_differences(name, draw, family)
