"""Per-example epsilon under an attack family."""

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.arrays import Float64, checked_pair
from lethe.metrics.scoring.attacks.crossfit import crossfit_epsilon
from lethe.metrics.scoring.attacks.disentangled import disentangled_epsilon
from lethe.metrics.scoring.attacks.exact import exact_epsilon_of_sorted
from lethe.metrics.scoring.attacks.family import (
    DEFAULT_ATTACKS,
    DELTA,
    EPSILON_CAP,
    MIN_MODELS_DIVIDED,
    AttackFamily,
)
from lethe.metrics.scoring.attacks.reference import MAX_CONFIDENCE, NO_ATTACK, reference_epsilon_of_sorted
from lethe.metrics.scoring.rates import rate_logs
from lethe.metrics.scoring.samples import sorted_values


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
