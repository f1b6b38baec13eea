"""A score as a competition's file defines it."""

from lethe.competition.file import Scoring
from lethe.metrics.scoring.resampling import FEWEST_MODELS
from lethe.metrics.scoring.score import ModelOutputs, Score, score


def score_outputs(unlearned: ModelOutputs, retrained: ModelOutputs, *, scoring: Scoring) -> Score:
    """Score as the competition's section [scoring] says. Too few models for a spread have no interval."""
    enough = unlearned.confidences.shape[0] >= FEWEST_MODELS
    return score(
        unlearned,
        retrained,
        attacks=scoring.attacks,
        delta=scoring.delta,
        cap=scoring.epsilon_cap,
        n_resamples=scoring.bootstrap_resamples if enough else 0,
    )
