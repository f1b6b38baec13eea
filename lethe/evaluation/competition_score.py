"""A score as a competition's file defines it."""

from lethe.competition.file import Metric
from lethe.metrics.scoring.attacks.family import AttackFamily
from lethe.metrics.scoring.resampling import FEWEST_MODELS
from lethe.metrics.scoring.score import ModelOutputs, Score, score


def score_outputs(unlearned: ModelOutputs, retrained: ModelOutputs, *, metric: Metric) -> Score:
    """Score under the competition's metric. Too few models for a spread have no interval."""
    enough = unlearned.confidences.shape[0] >= FEWEST_MODELS
    return score(
        unlearned,
        retrained,
        attacks=AttackFamily(metric.attacks),
        delta=metric.delta,
        cap=metric.epsilon_cap,
        n_resamples=metric.bootstrap_resamples if enough else 0,
    )
