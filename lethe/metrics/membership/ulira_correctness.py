"""U-LiRA as the program of Deep Unlearn computes it: on 0/1 correctness, in sample, for forgotten models only."""

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.arrays import Bool, Float64, Int64
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Scope
from lethe.metrics.core.result import MetricResult
from lethe.metrics.membership.ulira import State, checked_states

_NORMAL_SCALE = np.sqrt(2 * np.pi)


def ulira_correctness(correct: npt.ArrayLike, state: npt.ArrayLike) -> MetricResult:
    """Return the mean predicted membership probability of forgotten models, in [0, 1]; 0.5 is ideal.

    correct: bool, shape (n_splits, n_forget_sets, n_examples). state: same shape, values of `State`.
    per_example: the mean of each example; NaN where all models of a world agree (standard deviation 0), as in the
    program, or one world is empty. The value is over the examples that are not NaN; their number is in the table.
    Raises InvalidMetricInput for unequal shapes, values that are not 0 or 1, an unknown state.
    Source: Cadet et al. 2024 (arXiv:2410.01276), program, lira/consolidate_predictions.py.
    """
    right = np.asarray(correct)
    if right.ndim != 3 or not np.isin(right, (0, 1)).all():
        raise InvalidMetricInput("correct must be 0 or 1, of shape (n_splits, n_forget_sets, n_examples)")
    states = checked_states(state, right.shape)
    n_examples = right.shape[2]
    rows = membership_probabilities(right.reshape(-1, n_examples).T == 1, states.reshape(-1, n_examples).T)
    means = np.array([row.mean() if row.size else np.nan for row in rows])
    defined = ~np.isnan(means)
    value = float(means[defined].mean()) if defined.any() else float("nan")
    return MetricResult(value, per_example=means, table={"examples": int(defined.sum())})


def membership_probabilities(correct: Bool, state: Int64) -> list[Float64]:
    """Return, by example, the membership probability of every model that forgot it, in the models' order.

    correct, state: shape (n_examples, n_models). NaN where a world's standard deviation is 0, or a world is empty.
    """
    return [_of_example(row, kinds) for row, kinds in zip(correct, state, strict=True)]


def _of_example(correct: Bool, state: Int64) -> Float64:
    forgotten, never = correct[state == State.FORGOTTEN], correct[state == State.NEVER_SEEN]
    if not forgotten.size or not never.size:
        return np.full(forgotten.size, np.nan)
    outcomes = np.array([0.0, 1.0])
    as_forgotten, as_never = _normal_density(outcomes, forgotten), _normal_density(outcomes, never)
    return np.asarray((as_forgotten / (as_forgotten + as_never))[forgotten.astype(np.int64)])


def _normal_density(x: Float64, sample: Bool) -> Float64:
    deviation = np.std(sample)
    if deviation == 0.0:
        return np.full(x.shape, np.nan)
    distance = (x - np.mean(sample)) / deviation
    return np.asarray(np.exp(-(distance**2) / 2.0) / _NORMAL_SCALE / deviation)


METRIC = Metric(
    id="ulira_correctness",
    title="U-LiRA on correctness, as published",
    function=ulira_correctness,
    needs={},
    unit="probability",
    direction=Direction.LOWER,
    ideal=0.5,
    per_example=True,
    scope=Scope.BENCHMARK,
    bounds=(0.0, 1.0),
    source="Cadet et al. 2024 (2410.01276), program",
    formula="mean of N(c; m_f, s_f) / (N(c; m_f, s_f) + N(c; m_n, s_n)), c = 1 if the prediction is right",
    paper_and_code="This is the program. The paper describes the attack of Hayes et al. on confidences: `ulira`.",
)
