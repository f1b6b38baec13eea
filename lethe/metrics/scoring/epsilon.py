"""Per-example epsilon under an attack family, and forgetting quality, its mean bucket credit."""

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.arrays import Float64, checked_epsilon, checked_pair, rate_logs, sorted_values
from lethe.metrics.scoring.attacks.crossfit import crossfit_epsilon
from lethe.metrics.scoring.attacks.disentangled import disentangled_epsilon
from lethe.metrics.scoring.attacks.exact import exact_epsilon_of_sorted
from lethe.metrics.scoring.attacks.family import DEFAULT_ATTACKS, DELTA, EPSILON_CAP, MIN_MODELS_DIVIDED, AttackFamily
from lethe.metrics.scoring.attacks.reference import MAX_CONFIDENCE, NO_ATTACK, reference_epsilon_of_sorted

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


def per_example_epsilon(
    unlearned: npt.ArrayLike,
    retrained: npt.ArrayLike,
    *,
    attacks: AttackFamily = DEFAULT_ATTACKS,
    delta: float = DELTA,
    cap: float = EPSILON_CAP,
    seed: int = 0,
) -> Float64:
    """Return epsilon of every forget example, shape (n_examples,), in nats, within [0, cap].

    unlearned, retrained: the statistic, shape (n_models, n_examples) each, finite, equal shapes; at least 2 models,
    4 for the families that divide them. delta: of the (epsilon, delta) definition, within [0, 1). cap: largest
    epsilon, > 0. seed: divides the models into halves and draws crossfit's noise; other families do not use it.
    Raises InvalidScoreInput, naming model and example, for anything else, and for a statistic beyond 2**20 in the
    reference family, whose grids have a fixed absolute step.

    An example to which no attack of the reference grids applies (the program stops there with an assertion) gets its
    epsilon from the exact family. There, no attack applies only when all values of both sides are equal, and then
    epsilon is 0: nothing tells the two apart.
    Source: Triantafillou et al. 2024, sections 3.1.1, A.2 and A.13.
    """
    family = AttackFamily(attacks)
    u, r = checked_input(unlearned, retrained, attacks=family, delta=delta, cap=cap)
    if family is AttackFamily.CROSSFIT:
        return crossfit_epsilon(u, r, delta=delta, cap=cap, seed=seed)
    if family is AttackFamily.DISENTANGLED:
        return disentangled_epsilon(u, r, delta=delta, cap=cap, seed=seed)
    return epsilon_of_sorted(sorted_values(u), sorted_values(r), attacks=family, delta=delta, cap=cap)


def checked_input(
    unlearned: npt.ArrayLike, retrained: npt.ArrayLike, *, attacks: AttackFamily, delta: float, cap: float
) -> tuple[Float64, Float64]:
    """Return both sides as float64 of shape (n_models, n_examples), fit for the family; else InvalidScoreInput."""
    if not 0.0 <= delta < 1.0:
        raise InvalidScoreInput(f"delta must be within [0, 1), not {delta}")
    if not cap > 0.0:
        raise InvalidScoreInput(f"the cap on epsilon must be greater than 0, not {cap}")
    u, r = checked_pair(unlearned, retrained)
    if attacks.divides_models and u.shape[0] < MIN_MODELS_DIVIDED:
        raise InvalidScoreInput(
            f"{attacks} attacks need at least {MIN_MODELS_DIVIDED} models on each side, not {u.shape[0]}"
        )
    if attacks is AttackFamily.REFERENCE:
        _require_reach(u, side="unlearned")
        _require_reach(r, side="retrained")
    return u, r


def epsilon_of_sorted(
    unlearned: Float64, retrained: Float64, *, attacks: AttackFamily, delta: float, cap: float
) -> Float64:
    """Return epsilon per example of checked rows: shape (n_examples, n_models), each ascending.

    attacks: reference or exact; the others need to know which model a value came from.
    """
    if attacks is AttackFamily.EXACT:
        return exact_epsilon_of_sorted(unlearned, retrained, delta, cap)
    logs = rate_logs(unlearned.shape[1], delta=delta)
    epsilon = reference_epsilon_of_sorted(unlearned, retrained, logs, cap)
    missed = np.flatnonzero(epsilon == NO_ATTACK)
    if missed.size:
        epsilon[missed] = exact_epsilon_of_sorted(unlearned[missed], retrained[missed], delta, cap)
    return epsilon


def _require_reach(values: Float64, *, side: str) -> None:
    beyond = np.abs(values) > MAX_CONFIDENCE
    if not beyond.any():
        return
    model, example = (int(k) for k in np.argwhere(beyond)[0])
    raise InvalidScoreInput(
        f"{side} confidence of model {model} on example {example} is {values[model, example]}, beyond "
        f"+-{MAX_CONFIDENCE:.0f}: the reference grids have 100 thresholds a unit; use the exact attacks",
        side=side,
        model=model,
        example=example,
    )
