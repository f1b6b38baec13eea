"""A score beside the oracle's, and signs that the outputs are not what they should be.

The oracle is exact retraining: a second, independent set of retrained models scored as if it were a submission. Its F
is well below 1, because attacks are fitted on the very models that they are judged on, and it is the best that an
unlearning method can honestly reach on the split.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.arrays import checked_confidences
from lethe.metrics.scoring.resampling import Replicates, interval_around
from lethe.metrics.scoring.score import Score

LEAK_STANDARD_ERRORS = 4.0
DETERMINISTIC_SPREAD = 0.05
REPEATED_SHARE = 0.01


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
