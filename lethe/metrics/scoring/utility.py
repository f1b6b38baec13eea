"""Utility: how much of the retrained models' accuracy the unlearned models keep."""

import math

import numpy.typing as npt

from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.arrays import checked_accuracies


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
