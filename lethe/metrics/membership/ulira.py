"""U-LiRA over many splits of the data: models that forgot an example against models that never saw it."""

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from lethe.metrics.attacks.likelihood_attack import (
    Density,
    DensityParameters,
    attack_result,
    balanced_accuracy,
    held_out_ratios,
)
from lethe.metrics.core.arrays import Float64, Int64, real_array
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Scope
from lethe.metrics.core.result import MetricResult


class State(IntEnum):
    """What a model has to do with an example."""

    TRAINED = 0
    FORGOTTEN = 1
    NEVER_SEEN = 2


def ulira(confidences: npt.ArrayLike, state: npt.ArrayLike, *, density: Density = "normal") -> MetricResult:
    """Return the attack's mean accuracy over examples, in [0, 1]; 0.5 is ideal.

    confidences: logit-scaled, shape (n_splits, n_forget_sets, n_examples). state: same shape, values of `State`.
    Models of a split are scored under densities fitted to the models of all other splits, for they share their
    training data. Examples without models of both states in at least two splits are left out (NaN in per_example).
    table: as for `ulira_split`, and the number of examples used.
    Raises InvalidMetricInput for unequal shapes, an unknown state, or if no example can be used.
    Source: Hayes et al. 2024 (arXiv:2403.01218); Cadet et al. 2024 (arXiv:2410.01276), section 6.6.
    """
    h = real_array(confidences, axes=("splits", "forget sets", "examples"), name="confidences")
    states = checked_states(state, h.shape)
    split = np.repeat(np.arange(h.shape[0]), h.shape[1])
    values, kinds = h.reshape(split.size, -1).T, states.reshape(split.size, -1).T
    accuracies = np.full(len(values), np.nan)
    scored: list[tuple[Float64, Float64]] = []
    for example, (x, kind) in enumerate(zip(values, kinds, strict=True)):
        forgotten, unseen = kind == State.FORGOTTEN, kind == State.NEVER_SEEN
        groups = split[forgotten], split[unseen]
        if min(np.unique(group).size for group in groups) < 2:
            continue
        scored.append(held_out_ratios(x[forgotten], x[unseen], groups, density=density))
        accuracies[example] = balanced_accuracy(*scored[-1])
    if not scored:
        raise InvalidMetricInput("no example was forgotten in two splits and never seen in two others")
    members = np.concatenate([np.repeat([True, False], [x.size, y.size]) for x, y in scored])
    ratios = np.concatenate([part for both in scored for part in both])
    used = attack_result(accuracies[~np.isnan(accuracies)], ratios, members)
    return MetricResult(used.value, per_example=accuracies, table={**used.table, "examples": len(scored)})


def checked_states(state: npt.ArrayLike, shape: tuple[int, ...]) -> Int64:
    """Return the states as integers of the given shape. Raises InvalidMetricInput for another shape or value."""
    states = np.asarray(state)
    if states.shape != shape:
        raise InvalidMetricInput(f"state must have the shape of the confidences, {shape}, not {states.shape}")
    unknown = ~np.isin(states, list(State))
    if unknown.any():
        value = states[unknown][0]
        raise InvalidMetricInput(f"state must be 0 (trained), 1 (forgotten) or 2 (never seen), not {value}")
    return states.astype(np.int64)


METRIC = Metric(
    id="ulira",
    title="U-LiRA",
    function=ulira,
    needs={},
    unit="accuracy",
    direction=Direction.LOWER,
    ideal=0.5,
    defaults=DensityParameters,
    per_example=True,
    scope=Scope.BENCHMARK,
    bounds=(0.0, 1.0),
    source="Hayes et al. 2024 (2403.01218); Cadet et al. 2024 (2410.01276), sections 5.5.2 and 6.6",
    formula="accuracy of [log N(h; mu_f, s_f) - log N(h; mu_n, s_n) > 0], parameters from all other splits",
    paper_and_code="The program of Cadet et al. fits the densities to 0/1 correctness and scores models that were in "
    "the fit (`ulira_correctness`); here logit-scaled confidences and held-out models.",
)
