"""Likelihood-ratio attacks on unlearned models: U-LiRA over splits, on one split and as published; RULI."""

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from lethe.metrics.attacks.likelihood_attack import (
    Density,
    DensityParameters,
    attack_result,
    balanced_accuracy,
    held_out_ratios,
    roc_curve,
)
from lethe.metrics.core.arrays import Bool, Float64, Int64, real_array
from lethe.metrics.core.compiled import in_threads
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Metric, Resampling, Scope, both_sides
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


ULIRA = Metric(
    title="U-LiRA",
    function=ulira,
    unit="accuracy",
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


def ulira_split(unlearned: Float64, retrained: Float64, *, density: Density = "normal") -> MetricResult:
    """Return the attack's mean accuracy over forget examples, in [0, 1]; 0.5 is ideal.

    unlearned, retrained: logit-scaled confidences, shape (n_models, n_examples) each, at least 3 models, paired.
    Pair i is scored under densities fitted to all other pairs; a ratio of exactly 1 counts half, so that equal sides
    give 0.5. The kernel density takes time in the square of n_models.
    per_example: accuracy of each. table: area under the ROC curve over all examples and models, and its true positive
    rates at low false positive rates.
    """
    n_models = len(unlearned)
    pair = np.arange(n_models)
    columns = zip(np.ascontiguousarray(unlearned.T), np.ascontiguousarray(retrained.T), strict=True)
    ratios = in_threads(lambda both: held_out_ratios(*both, (pair, pair), density=density), columns)
    accuracies = np.array([balanced_accuracy(x, y) for x, y in ratios])
    forgotten = np.tile(np.repeat([True, False], n_models), len(ratios))
    return attack_result(accuracies, np.concatenate([part for both in ratios for part in both]), forgotten)


ULIRA_SPLIT = Metric(
    title="U-LiRA on one split",
    function=ulira_split,
    needs=both_sides("forget_margins"),
    unit="accuracy",
    ideal=0.5,
    defaults=DensityParameters,
    paired=True,
    fewest_models=3,
    per_example=True,
    resampling=Resampling.MODELS,
    n_resamples=20,
    bounds=(0.0, 1.0),
    source="Hayes et al. 2024 (2403.01218); Cadet et al. 2024 (2410.01276), section 5.5.2",
    formula="accuracy of [log N(h; mu_u, s_u) - log N(h; mu_r, s_r) > 0], parameters from all other pairs",
    paper_and_code="U-LiRA draws many splits and forget sets; here the one split of the competition is used. The "
    "published program fits 0/1 correctness in sample (`ulira_correctness`).",
)


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


ULIRA_CORRECTNESS = Metric(
    title="U-LiRA on correctness, as published",
    function=ulira_correctness,
    unit="probability",
    ideal=0.5,
    per_example=True,
    scope=Scope.BENCHMARK,
    bounds=(0.0, 1.0),
    source="Cadet et al. 2024 (2410.01276), program",
    formula="mean of N(c; m_f, s_f) / (N(c; m_f, s_f) + N(c; m_n, s_n)), c = 1 if the prediction is right",
    paper_and_code="This is the program. The paper describes the attack of Hayes et al. on confidences: `ulira`.",
)


LOW_RATE, MIN_NEGATIVES = 0.01, 51  # fewer negatives hold no point at the rate


def ruli(unlearned: Float64, retrained: Float64) -> MetricResult:
    """Return the area under the ROC curve of p_unlearned / (p_unlearned + p_retrained), mean over examples.

    unlearned, retrained: confidences, shapes (n_models, n_examples); the numbers of models may differ. Densities are
    sums of Gaussian kernels of bandwidth 1 on confidences; a run is left out of both sides' densities, by its number.
    per_example: the area of every example. table: the most vulnerable example's, and the true positive rate at 1 %
    over all examples, None below 51 retrained models, where the published reading is always 0.
    The logarithm of the ratio is used, which ranks alike and is defined far from all models.
    """
    u, r = unlearned, retrained
    ratios = in_threads(lambda example: log_ratios(u[:, example], r[:, example]), range(u.shape[1]))
    runs = np.repeat([True, False], (len(u), len(r)))
    areas = np.array([roc_curve(np.concatenate(pair), runs).area for pair in ratios])
    low = None
    if len(r) >= MIN_NEGATIVES:
        low = float(np.mean([_rate(*pair) for pair in ratios]))
    table = {"most_vulnerable": float(areas.max()), "true_positive_rate_at_0.01": low}
    return MetricResult(float(areas.mean()), per_example=areas, table=table)


def log_ratios(unlearned: Float64, retrained: Float64) -> tuple[Float64, Float64]:
    """Return log p_unlearned - log p_retrained of all runs of both sides, of one example, each run left out."""
    groups = np.arange(len(unlearned)), np.arange(len(retrained))
    return held_out_ratios(np.ascontiguousarray(unlearned), np.ascontiguousarray(retrained), groups, density="kde")


def _rate(unlearned: Float64, retrained: Float64) -> float:
    """Return the share of unlearned runs above all but at most 1 % of the retrained ones."""
    allowed = int(LOW_RATE * retrained.size)
    return float((unlearned > np.sort(retrained)[-1 - allowed]).mean())


RULI = Metric(
    title="RULI on one split",
    function=ruli,
    needs=both_sides("forget_margins"),
    fewest_models=2,
    unit="area under the ROC curve",
    per_example=True,
    bounds=(0.0, 1.0),
    source="Naderloui et al. 2025 (2506.13009)",
    formula="mean over examples of the AUC of p_u / (p_u + p_r), Gaussian kernels of bandwidth 1, a run left out",
    paper_and_code=(
        "The paper attacks one target with shadow models of its own; here the runs and the retrained models of "
        "one split "
        "are both. The program's true positive rate at 1 % is 0 below 51 negatives, even for perfect "
        "separation, and its "
        "score is undefined far from all models; here the rate is the share above all but 1 % of the negatives, and "
        "logarithms are compared."
    ),
)
