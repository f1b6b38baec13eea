"""The score of an unlearning method: forgetting quality times two utility ratios, with its uncertainty."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.arrays import Float64, ModelOutputs, checked_accuracies
from lethe.metrics.scoring.attacks.family import DEFAULT_ATTACKS, DELTA, EPSILON_CAP, SCORER_VERSION, AttackFamily
from lethe.metrics.scoring.epsilon import checked_input, forgetting_quality, n_judged_models, per_example_epsilon
from lethe.metrics.scoring.resampling import Replicates, interval_around, replicate_forgetting, replicate_ratio


def utility_ratio(unlearned: npt.ArrayLike, retrained: npt.ArrayLike, *, n_models: int, split: str = "retain") -> float:
    """Return mean accuracy of the unlearned models over mean accuracy of the retrained ones; not capped at 1.

    unlearned, retrained: shape (n_models,), accuracies within [0, 1] on the same set, named `split` in messages.
    Sums are correctly rounded, so the order of the models cannot change the ratio.
    Raises InvalidScoreInput for a wrong shape or value, and if every retrained accuracy is 0.
    Source: Triantafillou et al. 2024, equation 2.
    """
    u = checked_accuracies(unlearned, side="unlearned", split=split, n_models=n_models)
    r = checked_accuracies(retrained, side="retrained", split=split, n_models=n_models)
    total = math.fsum(r)
    if total == 0.0:
        raise InvalidScoreInput(f"every retrained {split} accuracy is 0: no ratio to it exists", side="retrained")
    return (math.fsum(u) / n_models) / (total / n_models)


__all__ = ["SCORER_VERSION", "ModelOutputs", "Score", "score"]

Accuracies = tuple[Float64, Float64]
"""Checked accuracies of the unlearned and of the retrained models, shape (n_models,) each."""
GivenAccuracies = tuple[Float64 | None, Float64 | None]


@dataclass(frozen=True, eq=False)
class Score:
    """A score and what it was made of.

    forgetting_quality: F, within [0, 1]. epsilon: shape (n_examples,), nats.
    retain_ratio, test_ratio: as measured, None without accuracies; final_score: their product with F, each at most
    `AttackFamily.largest_ratio`, None unless both are known.
    interval: 95 % interval of `headline`, None without resamples; forgetting_quality_interval: the same of F.
    replicates: the resampled values that the intervals came from, for comparing submissions on one split.
    """

    forgetting_quality: float
    epsilon: Float64
    retain_ratio: float | None
    test_ratio: float | None
    final_score: float | None
    interval: tuple[float, float] | None
    forgetting_quality_interval: tuple[float, float] | None
    attacks: AttackFamily
    n_models: int
    delta: float
    cap: float
    scorer_version: str = SCORER_VERSION
    replicates: Replicates | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        ends = "" if self.interval is None else f", interval=({self.interval[0]:.4g}, {self.interval[1]:.4g})"
        return f"Score({self.headline:.6g}{ends}, {self.attacks.value}, n_models={self.n_models})"

    @property
    def headline(self) -> float:
        """The final score, or F where utility was not measured."""
        return self.forgetting_quality if self.final_score is None else self.final_score

    def as_json(self) -> dict[str, Any]:
        """Return the score as plain numbers, lists and strings; the replicates stay out."""
        f_interval = self.forgetting_quality_interval
        return {
            "forgetting_quality": self.forgetting_quality,
            "epsilon": [float(value) for value in self.epsilon],
            "retain_ratio": self.retain_ratio,
            "test_ratio": self.test_ratio,
            "final_score": self.final_score,
            "interval": None if self.interval is None else list(self.interval),
            "forgetting_quality_interval": None if f_interval is None else list(f_interval),
            "attacks": self.attacks.value,
            "n_models": self.n_models,
            "delta": self.delta,
            "cap": self.cap,
            "scorer_version": self.scorer_version,
        }


def score(
    unlearned: ModelOutputs,
    retrained: ModelOutputs,
    *,
    attacks: AttackFamily = DEFAULT_ATTACKS,
    delta: float = DELTA,
    cap: float = EPSILON_CAP,
    n_resamples: int = 0,
    seed: int = 0,
    attack_seed: int | None = None,
) -> Score:
    """Return the score of the unlearned models against the retrained ones.

    attacks, delta, cap: see `per_example_epsilon`. n_resamples: 0 for no interval, else at least 20.
    seed: fixes the resamples. attack_seed: fixes the halves of the families that divide the models; None for `seed`.
    Two submissions whose scores are compared have equal seeds; a secret attack_seed may differ.
    Accuracies are given by both sides or by neither.
    Raises InvalidScoreInput, naming the array, model and example, for input that cannot be scored.
    Source: Triantafillou et al. 2024, equation 2 and algorithm 1.
    """
    family = AttackFamily(attacks)
    u, r = checked_input(unlearned.confidences, retrained.confidences, attacks=family, delta=delta, cap=cap)
    n_models = u.shape[0]
    utility = utility_of(
        retain=(unlearned.retain_accuracy, retrained.retain_accuracy),
        test=(unlearned.test_accuracy, retrained.test_accuracy),
        n_models=n_models,
    )
    halves = seed if attack_seed is None else attack_seed
    epsilon = per_example_epsilon(u, r, attacks=family, delta=delta, cap=cap, seed=halves)
    quality = forgetting_quality(epsilon, n_models=n_judged_models(n_models, attacks=family))
    replicates = None
    if n_resamples != 0:
        qualities = replicate_forgetting(
            u, r, attacks=family, delta=delta, cap=cap, n_resamples=n_resamples, seed=seed, attack_seed=halves
        )
        factor = math.sqrt((n_models - n_models // 2) / (n_models // 2))
        replicates = Replicates(qualities, qualities, factor, seed, n_models)
    interval = (
        None if replicates is None else interval_around(quality, replicates.standard_error(), most=family.largest_ratio)
    )
    forgetting = Score(
        forgetting_quality=quality,
        epsilon=epsilon,
        retain_ratio=None,
        test_ratio=None,
        final_score=None,
        interval=interval,
        forgetting_quality_interval=interval,
        attacks=family,
        n_models=n_models,
        delta=delta,
        cap=cap,
        replicates=replicates,
    )
    return with_utility(forgetting, utility)


@dataclass(frozen=True, eq=False)
class Utility:
    """Checked accuracies of both sides, and the ratios of their means; None where not measured."""

    retain: Accuracies | None
    test: Accuracies | None
    retain_ratio: float | None
    test_ratio: float | None


def utility_of(*, retain: GivenAccuracies, test: GivenAccuracies, n_models: int) -> Utility:
    """Return the utility of the unlearned models from both sides' accuracies.

    Raises InvalidScoreInput for accuracies that cannot be compared.
    """
    kept = _accuracies(*retain, split="retain", n_models=n_models)
    held = _accuracies(*test, split="test", n_models=n_models)
    return Utility(
        kept,
        held,
        None if kept is None else utility_ratio(*kept, n_models=n_models, split="retain"),
        None if held is None else utility_ratio(*held, n_models=n_models, split="test"),
    )


def with_utility(forgetting: Score, utility: Utility) -> Score:
    """Return a score that was computed from confidences alone, with the utility of the same models.

    Under the default family a ratio counts as 1 at most: accuracy beyond retraining's is no forgetting.
    """
    found = replace(forgetting, retain_ratio=utility.retain_ratio, test_ratio=utility.test_ratio)
    if utility.retain_ratio is None or utility.test_ratio is None:
        return found
    most = forgetting.attacks.largest_ratio
    final = forgetting.forgetting_quality * min(utility.retain_ratio, most) * min(utility.test_ratio, most)
    replicates = forgetting.replicates
    if replicates is None or utility.retain is None or utility.test is None:
        return replace(found, final_score=final)
    drawn: Any = {"n_resamples": replicates.headline.size, "seed": replicates.seed}
    headline = (
        replicates.forgetting_quality
        * np.minimum(replicate_ratio(*utility.retain, **drawn), most)
        * np.minimum(replicate_ratio(*utility.test, **drawn), most)
    )
    replicates = replace(replicates, headline=headline)
    interval = interval_around(final, replicates.standard_error(), most=most)
    return replace(found, final_score=final, interval=interval, replicates=replicates)


def _accuracies(
    unlearned: Float64 | None, retrained: Float64 | None, *, split: str, n_models: int
) -> Accuracies | None:
    if (unlearned is None) != (retrained is None):
        missing = "unlearned" if unlearned is None else "retrained"
        raise InvalidScoreInput(f"{split} accuracies are given for one side only: {missing} has none", side=missing)
    if unlearned is None or retrained is None:
        return None
    return (
        checked_accuracies(unlearned, side="unlearned", split=split, n_models=n_models),
        checked_accuracies(retrained, side="retrained", split=split, n_models=n_models),
    )
