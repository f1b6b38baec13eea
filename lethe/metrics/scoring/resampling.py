"""How far a score moves when other models are drawn: the delete-half jackknife over models.

Repeating models (the ordinary bootstrap) makes two samples look more different than they are: a repeated value is a
spike that an attack can enclose. Every replicate here leaves out a random half of the models of each side and repeats
none, so the samples stay what they were, only smaller. With d of N models left out, the spread of the replicates is
that of the score times sqrt(d / (N - d)), which is 1 for a half (Shao and Wu 1989); the factor is undone for odd N.

A replicate's level is not the score's (fewer models, another epsilon); only its spread is used. The interval is the
score +- 1.96 standard errors; docs/organisers/scoring.md has its coverage by simulation.

A model's confidences and accuracies stay or go together; the two sides draw apart. Equal seeds and numbers of models
give equal draws, so replicates of two submissions on one split are paired: see compare.py.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from lethe.metrics.core.compiled import in_threads, jitted
from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.arrays import Float64, Int64
from lethe.metrics.scoring.attacks.crossfit import crossfit_epsilons
from lethe.metrics.scoring.attacks.disentangled import disentangled_epsilon
from lethe.metrics.scoring.attacks.family import AttackFamily
from lethe.metrics.scoring.epsilon import epsilon_of_sorted, forgetting_quality

MIN_RESAMPLES = 20
MIN_MODELS = 8
Interval = tuple[float, float]
NORMAL_QUANTILE_95 = 1.959963984540054


@dataclass(frozen=True, eq=False)
class Replicates:
    """F and the headline score, recomputed on random halves of the models.

    forgetting_quality, headline: shape (n_resamples,). factor: from their standard deviation to a standard error.
    seed, n_models: replicates with equal seed, number of models and length are paired.
    """

    forgetting_quality: Float64
    headline: Float64
    factor: float
    seed: int
    n_models: int

    def require_paired(self, other: "Replicates") -> None:
        """Raise InvalidScoreInput unless replicate b of both kept the same models, for every b, and has a value."""
        mine = (self.seed, self.n_models, self.headline.size)
        theirs = (other.seed, other.n_models, other.headline.size)
        if mine != theirs:
            raise InvalidScoreInput(
                f"replicates are not paired: (seed, models, resamples) are {mine} in one and {theirs} in the other"
            )
        if np.isnan(self.headline).any() or np.isnan(other.headline).any():
            raise InvalidScoreInput("a replicate has no utility ratio: its retrained models all have accuracy 0")

    def standard_error(self) -> float:
        """Return the standard error of the headline score over models."""
        return self.factor * float(self.headline.std(ddof=1))


def interval_around(value: float, standard_error: float, *, most: float = math.inf) -> tuple[float, float]:
    """Return the 95 % interval of a score, value +- 1.96 standard errors, cut off at 0 and at `most`."""
    reach = NORMAL_QUANTILE_95 * standard_error
    return max(0.0, value - reach), min(most, value + reach)


def require_resamples(n_resamples: int, *, n_models: int) -> None:
    """Raise InvalidScoreInput below 20 resamples or 8 models: fewer say nothing about a spread."""
    if n_resamples < MIN_RESAMPLES:
        raise InvalidScoreInput(f"an interval needs at least {MIN_RESAMPLES} resamples, not {n_resamples}")
    if n_models < MIN_MODELS:
        raise InvalidScoreInput(f"an interval needs at least {MIN_MODELS} models on each side, not {n_models}")


def kept_halves(n_models: int, *, n_resamples: int, seed: int) -> Iterator[tuple[Int64, Int64]]:
    """Yield, per replicate, which unlearned and which retrained models stay: 0 or 1, shape (n_models,) each.

    n_models // 2 of each side are left out.
    """
    rng = np.random.default_rng([seed, n_models])
    for _ in range(n_resamples):
        unlearned = np.ones(n_models, np.int64)
        retrained = np.ones(n_models, np.int64)
        unlearned[rng.permutation(n_models)[: n_models // 2]] = 0
        retrained[rng.permutation(n_models)[: n_models // 2]] = 0
        yield unlearned, retrained


class SortedSamples(NamedTuple):
    """One side's statistic, sorted per example.

    values: shape (n_examples, n_models), ascending along models.
    order: shape (n_examples, n_models), the model that each value came from.
    """

    values: Float64
    order: Int64


def sort_samples(confidences: Float64) -> SortedSamples:
    """Return sorted rows and the models they came from; confidences: shape (n_models, n_examples)."""
    rows = np.ascontiguousarray(confidences.T)
    order = np.argsort(rows, axis=1)
    return SortedSamples(np.take_along_axis(rows, order, axis=1), order)


def resampled(samples: SortedSamples, repeats: Int64) -> Float64:
    """Return the sorted rows of the sample that holds model m repeats[m] times; no sorting.

    repeats: shape (n_models,), >= 0. Result: shape (n_examples, sum of repeats), ascending along models.
    """
    return repeat_in_order(samples.values, samples.order, repeats, int(repeats.sum()))


@jitted
def repeat_in_order(values: Float64, order: Int64, repeats: Int64, total: int) -> Float64:
    """Return each sorted value as often as its model is repeated; see `resampled`."""
    n_examples, n_models = values.shape
    result = np.empty((n_examples, total), np.float64)
    for s in range(n_examples):
        end = 0
        for k in range(n_models):
            for _ in range(repeats[order[s, k]]):
                result[s, end] = values[s, k]
                end += 1
    return result


def replicate_forgetting(
    unlearned: Float64,
    retrained: Float64,
    *,
    attacks: AttackFamily,
    delta: float,
    cap: float,
    n_resamples: int,
    seed: int,
    attack_seed: int = 0,
) -> Float64:
    """Return F of every replicate, shape (n_resamples,); sorts once, then repeats sorted values by their count.

    As many replicates at a time as there are processors; each is computed alone, so their number changes no bit.

    unlearned, retrained: checked, shape (n_models, n_examples). Buckets are those of the full number of models. seed:
    of the models that are left out. attack_seed: of crossfit's noise and halves.
    Raises InvalidScoreInput below 20 resamples or 8 models.
    """
    n_models = unlearned.shape[0]
    require_resamples(n_resamples, n_models=n_models)
    if attacks is AttackFamily.CROSSFIT:
        kept = np.array(list(kept_halves(n_models, n_resamples=n_resamples, seed=seed)), np.bool_)
        epsilons = crossfit_epsilons(unlearned, retrained, kept, delta=delta, cap=cap, seed=attack_seed)
        return np.array([forgetting_quality(epsilon, n_models=n_models) for epsilon in epsilons])
    sides = sort_samples(unlearned), sort_samples(retrained)

    def quality(replicate: tuple[int, tuple[Int64, Int64]]) -> float:
        b, (keep_u, keep_r) = replicate
        if attacks is AttackFamily.DISENTANGLED:
            u, r = unlearned[keep_u == 1], retrained[keep_r == 1]
            epsilon = disentangled_epsilon(u, r, delta=delta, cap=cap, seed=seed + b)
        else:
            u, r = resampled(sides[0], keep_u), resampled(sides[1], keep_r)
            epsilon = epsilon_of_sorted(u, r, attacks=attacks, delta=delta, cap=cap)
        return forgetting_quality(epsilon, n_models=n_models)

    return np.array(in_threads(quality, enumerate(kept_halves(n_models, n_resamples=n_resamples, seed=seed))))


def replicate_ratio(unlearned: Float64, retrained: Float64, *, n_resamples: int, seed: int) -> Float64:
    """Return the utility ratio of every replicate, shape (n_resamples,), on the models that `kept_halves` keeps.

    unlearned, retrained: accuracies, shape (n_models,). NaN where every kept retrained accuracy is 0.
    """
    result = np.empty(n_resamples, np.float64)
    for b, (keep_u, keep_r) in enumerate(kept_halves(unlearned.size, n_resamples=n_resamples, seed=seed)):
        below = float(retrained @ keep_r)
        result[b] = float(unlearned @ keep_u) / below if below > 0.0 else np.nan
    return result


SIGNIFICANCE = 0.05


@dataclass(frozen=True, eq=False)
class ScoredEntry:
    """What a comparison needs of one submission: its score and the replicates made with it."""

    headline: float
    replicates: Replicates


@dataclass(frozen=True)
class PairedComparison:
    """A paired comparison of two submissions.

    difference: first minus second headline score. standard_error: of the difference, over models.
    interval: 95 % interval of the difference. p_value: two-sided, normal; 1 for equal scores.
    """

    difference: float
    standard_error: float
    interval: tuple[float, float]
    p_value: float


def compare(first: ScoredEntry, second: ScoredEntry) -> PairedComparison:
    """Return the paired comparison of two submissions scored against the same retrained models.

    Replicate b of both left out the same retrained models and the same runs, so what they share cancels in the
    difference of the replicates; its spread is the standard error of the difference.
    Raises InvalidScoreInput if the replicates are not paired (another seed, number of models, or length).
    """
    a, b = first.replicates, second.replicates
    a.require_paired(b)
    difference = first.headline - second.headline
    error = a.factor * float((a.headline - b.headline).std(ddof=1))
    return PairedComparison(
        difference=difference,
        standard_error=error,
        interval=(difference - NORMAL_QUANTILE_95 * error, difference + NORMAL_QUANTILE_95 * error),
        p_value=two_sided_p_value(difference, error),
    )


def two_sided_p_value(difference: float, standard_error: float) -> float:
    """Return the chance that a normal difference of mean 0 is at least this large; 1 for no difference at all."""
    if difference == 0.0:
        return 1.0
    if standard_error == 0.0:
        return 0.0
    return float(2.0 * ndtr(-abs(difference) / standard_error))


def tied_groups(standings: Sequence[ScoredEntry], *, significance: float = SIGNIFICANCE) -> list[int]:
    """Return for every submission its group, counted from 0 at the top, in the order given.

    Down the ranking, a submission joins the group while the test against the group's best finds no difference at the
    level `significance`, within (0, 1); the first that differs heads the next group. Being tied is no equivalence (A
    with B and B with C, yet not A with C), so a group says only: none of these is shown to be below its head.
    Raises InvalidScoreInput for replicates that are not paired, or a level outside (0, 1).
    """
    if not 0.0 < significance < 1.0:
        raise InvalidScoreInput(f"significance must be within (0, 1), not {significance}")
    ranking = sorted(range(len(standings)), key=lambda k: -standings[k].headline)
    groups = [0] * len(standings)
    group = -1
    head: ScoredEntry | None = None
    for k in ranking:
        if head is None or compare(head, standings[k]).p_value < significance:
            head = standings[k]
            group += 1
        groups[k] = group
    return groups
