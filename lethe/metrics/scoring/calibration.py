"""A score beside the oracle's, and signs that the outputs are not what they should be.

The oracle is exact retraining: a second, independent set of retrained models scored as if it were a submission. It is
the best that an unlearning method can honestly reach on the split. Its F is near 1 under crossfit attacks, and about .2
under the published ones, which are fitted on the very models that they are judged on.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.arrays import Float64, checked_confidences
from lethe.metrics.scoring.attacks.family import HONEST_DISAGREEMENT, AttackFamily
from lethe.metrics.scoring.epsilon import forgetting_quality, n_judged_models, per_example_epsilon
from lethe.metrics.scoring.resampling import Replicates, interval_around
from lethe.metrics.scoring.score import Score

LEAK_STANDARD_ERRORS = 4.0
DETERMINISTIC_SPREAD = 0.05
REPEATED_SHARE = 0.01
SUSPECT_DISAGREEMENT = 0.25


@dataclass(frozen=True)
class Calibration:
    """A score as a fraction of the oracle's.

    fraction: headline score over the oracle's, 1 for as good as retraining; interval: its 95 % interval.
    excess: by how many standard errors of the difference F lies above the oracle's F; negative below.
    leaked: excess above 4; retraining itself does not reach this F, so the retrained models are known or copied.
    """

    fraction: float
    interval: tuple[float, float]
    excess: float
    leaked: bool


def calibrate(score: Score, oracle: Score) -> Calibration:
    """Return a score as a fraction of the oracle's, both made against the same retrained models.

    oracle: `score(other_retrained, retrained)` with the same attacks, resamples and seed.
    Raises InvalidScoreInput if the two were made differently or without resamples, or the oracle's score is 0.
    """
    if score.attacks is not oracle.attacks:
        raise InvalidScoreInput(f"the oracle was scored by {oracle.attacks} attacks, the submission by {score.attacks}")
    if (score.final_score is None) != (oracle.final_score is None):
        raise InvalidScoreInput("only one of oracle and submission has accuracies: their scores do not compare")
    if not oracle.headline > 0.0:
        raise InvalidScoreInput("the oracle's score is 0: no fraction of it exists")
    ours, theirs = _paired(score, oracle)
    fraction = score.headline / oracle.headline
    # A ratio of two noisy scores, linearised around both.
    error = ours.factor * float((ours.headline - fraction * theirs.headline).std(ddof=1)) / oracle.headline
    difference = score.forgetting_quality - oracle.forgetting_quality
    difference_error = ours.factor * float((ours.forgetting_quality - theirs.forgetting_quality).std(ddof=1))
    excess = _in_errors(difference, difference_error)
    return Calibration(
        fraction=fraction,
        interval=interval_around(fraction, error),
        excess=excess,
        leaked=excess > LEAK_STANDARD_ERRORS,
    )


@dataclass(frozen=True)
class Suspicion:
    """What is odd about the outputs of the runs, whatever they score.

    repeated_runs: runs whose confidences all equal those of an earlier run.
    copied_models: runs whose confidences all equal those of a retrained model.
    spread_ratio: median over examples of the unlearned interquartile range over the retrained one.
    deterministic: more than 1 % repeated runs, or a spread ratio below 0.05: the runs barely depend on their seed.
    copied: more than 1 % copied models.
    """

    repeated_runs: int
    copied_models: int
    spread_ratio: float
    deterministic: bool
    copied: bool


def suspicion(unlearned: npt.ArrayLike, retrained: npt.ArrayLike) -> Suspicion:
    """Return the signs of deterministic or copied runs; confidences of shape (n_models, n_examples), any N a side.

    Examples whose retrained models all agree within the interquartile range say nothing and are left out of the
    spread ratio; it is infinite if none is left. Raises InvalidScoreInput for values that cannot be scored.
    """
    u = checked_confidences(unlearned, side="unlearned")
    r = checked_confidences(retrained, side="retrained")
    if u.shape[1] != r.shape[1]:
        raise InvalidScoreInput(f"unlearned has {u.shape[1]} forget examples, retrained {r.shape[1]}")
    known = {row.tobytes() for row in r}
    copied_models = sum(row.tobytes() in known for row in u)
    repeated_runs = u.shape[0] - len({row.tobytes() for row in u})
    spread_u, spread_r = (np.subtract(*np.quantile(side, (0.75, 0.25), axis=0)) for side in (u, r))
    varied = spread_r > 0.0
    spread_ratio = float(np.median(spread_u[varied] / spread_r[varied])) if varied.any() else float("inf")
    few = REPEATED_SHARE * u.shape[0]
    return Suspicion(
        repeated_runs=repeated_runs,
        copied_models=copied_models,
        spread_ratio=spread_ratio,
        deterministic=repeated_runs > few or spread_ratio < DETERMINISTIC_SPREAD,
        copied=copied_models > few,
    )


@dataclass(frozen=True)
class Doubt:
    """Why a score may not mean what it says; for the organiser.

    disagreement: the largest share of the oracle's F that a published family gives, less crossfit's share. Honest
    entries of docs/organisers/what-wins-without-unlearning.md have at most HONEST_DISAGREEMENT; entries that aim at a
    published family have .5 to 3. None where the oracle's F is 0 or families were not compared.
    above_oracle: the score is above the oracle's 95 % interval. copied_models: runs that equal a retrained model.
    reasons: a sentence for each of them that is out of the ordinary.
    is_held: the score counts only once an organiser has confirmed it.
    """

    disagreement: float | None
    above_oracle: bool
    copied_models: int
    reasons: tuple[str, ...]

    @property
    def is_held(self) -> bool:
        return self.above_oracle or self.copied_models > 0


def doubt_about(
    score: Score,
    oracle: Score,
    *,
    unlearned: npt.ArrayLike,
    oracle_models: npt.ArrayLike,
    retrained: npt.ArrayLike,
    compares_families: bool = True,
) -> Doubt:
    """Return what an organiser should look at before a score counts.

    score, oracle: as ranked, by one family. unlearned, oracle_models, retrained: confidences, shape (n_models,
    n_examples). compares_families: compute the disagreement, which takes longer than a score and holds none back.
    """
    u, o, r = (np.asarray(side, np.float64) for side in (unlearned, oracle_models, retrained))
    shares = {family: _share(family, u, o, r) for family in AttackFamily} if compares_families else {}
    published = {family: share for family, share in shares.items() if family.is_published and share is not None}
    robust = shares.get(AttackFamily.CROSSFIT)
    disagreement = None if robust is None or not published else max(published.values()) - robust
    copied = suspicion(u, r).copied_models
    above = oracle.interval is not None and score.headline > oracle.interval[1]
    reasons = []
    if disagreement is not None and robust is not None and disagreement > SUSPECT_DISAGREEMENT:
        family = max(published, key=lambda each: published[each])
        reasons.append(
            f"The {family} attacks give {published[family]:.0%} of exact retraining's forgetting quality, the crossfit "
            f"attacks {robust:.0%}; of honest entries they differ by at most {HONEST_DISAGREEMENT:.0%}."
        )
    if above and oracle.interval is not None:
        reasons.append(
            f"The score, {score.headline:.4g}, is above exact retraining's 95 % interval, which ends at "
            f"{oracle.interval[1]:.4g}."
        )
    if copied:
        reasons.append(f"{copied} runs returned exactly a retrained model's outputs.")
    return Doubt(disagreement, above, copied, tuple(reasons))


def _share(family: AttackFamily, unlearned: Float64, oracle: Float64, retrained: Float64) -> float | None:
    """Return F as a share of the oracle's; None where that is 0 or a family cannot take the values."""
    try:
        ours, best = (
            forgetting_quality(
                per_example_epsilon(side, retrained, attacks=family),
                n_models=n_judged_models(len(retrained), attacks=family),
            )
            for side in (unlearned, oracle)
        )
    except InvalidScoreInput:  # too few models, or values beyond the grids of the reference family
        return None
    return ours / best if best > 0.0 else None


def _in_errors(difference: float, error: float) -> float:
    if difference == 0.0:
        return 0.0
    return difference / error if error > 0.0 else float(np.copysign(np.inf, difference))


def _paired(score: Score, oracle: Score) -> tuple[Replicates, Replicates]:
    ours, theirs = score.replicates, oracle.replicates
    if ours is None or theirs is None:
        raise InvalidScoreInput("a calibration needs resamples of both the submission and the oracle")
    ours.require_paired(theirs)
    return ours, theirs
