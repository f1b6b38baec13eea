"""Forgetting quality F: points per example by buckets of epsilon, averaged over the forget set."""

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.arrays import Float64, checked_epsilon
from lethe.metrics.scoring.attacks.family import AttackFamily

BUCKET_WIDTH = 0.5


def n_buckets(n_models: int) -> int:
    """Return how many buckets of width 0.5 end at or below ceil(ln(n_models - 1)); 14 for 512 models.

    n_models: models on each side, >= 2. With 2 there is no bucket and, as in the published program, F is 0.
    Raises InvalidScoreInput for fewer.
    """
    if n_models < 2:
        raise InvalidScoreInput(f"forgetting quality needs at least 2 models on each side, not {n_models}")
    return int(np.ceil(np.log(n_models - 1)) / BUCKET_WIDTH)


def bucket_points(epsilon: npt.ArrayLike, *, n_models: int) -> Float64:
    """Return the points of each example, 2**-floor(epsilon / 0.5), or 0 past the last bucket.

    epsilon: shape (n_examples,), nats, >= 0; infinity earns nothing. n_models: models on each side, >= 2.
    Raises InvalidScoreInput if epsilon is empty, negative or NaN.
    Source: Triantafillou et al. 2024, section 3.1.2, with bins counted from 0 as in the published program.
    """
    values = checked_epsilon(epsilon)
    bucket = np.floor(values / BUCKET_WIDTH)
    return np.where(bucket < n_buckets(n_models), np.exp2(-bucket), 0.0)


def forgetting_quality(epsilon: npt.ArrayLike, *, n_models: int) -> float:
    """Return F, the mean of the examples' points, within [0, 1].

    epsilon: shape (n_examples,), nats, >= 0. n_models: models on each side, >= 2; sets the largest bucket.
    Raises InvalidScoreInput if epsilon is empty, negative or NaN. Points are powers of two, so their sum is exact
    and the order of the examples cannot matter.
    Source: Triantafillou et al. 2024, section 3.1.2.
    """
    points = bucket_points(epsilon, n_models=n_models)
    return float(points.sum() / points.size)


def n_judged_models(n_models: int, *, attacks: AttackFamily) -> int:
    """Return how many models of a side take part in the rates: all of them, or the judged half if disentangled."""
    return n_models // 2 if attacks is AttackFamily.DISENTANGLED else n_models
