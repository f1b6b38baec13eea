"""Likelihood-ratio attacks: LiRA with shadow models; U-LiRA over splits, on one split and as published; RULI."""

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Literal

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
from lethe.metrics.core.registry import Metric, Parameters, Resampling, Scope, both_sides
from lethe.metrics.core.result import MetricResult


def online_scores(scores: Float64, keep: Bool, targets: Float64, *, fixed_variance: bool = False) -> Float64:
    """Return the log likelihood ratio of member against non-member, shape (n_targets, n_examples).

    scores: shape (n_models, n_examples, n_views), the statistic of every shadow model. keep: shape (n_models,
    n_examples), whether the example was in the training set. targets: shape (n_targets, n_examples, n_views).
    fixed_variance: one standard deviation for all examples, that of the members, for both worlds. The published
    program does so too; the paper's text has one for each world.
    Source: Carlini et al. 2022 (arXiv:2112.03570), algorithm 1; tensorflow/privacy, mi_lira_2021, `generate_ours`.
    """
    members, others = _stacked(scores, keep), _stacked(scores, ~keep)
    spread_in = np.std(members) if fixed_variance else np.std(members, 1)
    spread_out = np.std(members) if fixed_variance else np.std(others, 1)
    log_in, log_out = _log_density(targets, members, spread_in), _log_density(targets, others, spread_out)
    return np.asarray((log_in - log_out).mean(axis=2), dtype=np.float64)


def offline_scores(scores: Float64, keep: Bool, targets: Float64, *, fixed_variance: bool = False) -> Float64:
    """Return minus the log likelihood of a non-member, shape (n_targets, n_examples); shapes as `online_scores`.

    Only shadow models without the example are used. Source: as above, `generate_ours_offline`. The paper's one-sided
    test is not what the program computes: a target far below the non-members scores as high as one far above.
    """
    others = _stacked(scores, ~keep)
    spread = np.std(others) if fixed_variance else np.std(others, 1)
    return np.asarray(-_log_density(targets, others, spread).mean(axis=2), dtype=np.float64)


def _log_density(targets: Float64, sample: Float64, spread: Any) -> Float64:
    from scipy.stats import norm  # noqa: PLC0415  slow to import, needed here alone

    return np.asarray(norm.logpdf(targets, np.median(sample, 1), spread + 1e-30))


def threshold_scores(targets: Float64) -> Float64:
    """Return the mean statistic over views, shape (n_targets, n_examples): the attack without shadow models."""
    return np.asarray(targets.mean(axis=2), dtype=np.float64)


def _stacked(scores: Float64, chosen: Bool) -> Float64:
    """Return the scores of the chosen models by example, shape (n_examples, fewest chosen, n_views)."""
    fewest = int(chosen.sum(axis=0).min())
    first = np.argsort(~chosen, axis=0, kind="stable")[:fewest]
    return np.ascontiguousarray(np.take_along_axis(scores, first[:, :, None], axis=0).transpose(1, 0, 2))


Attack = Literal["online", "online_fixed", "offline", "offline_fixed", "threshold"]
_SCORES: dict[Attack, Callable[[Float64, Bool, Float64], Float64]] = {
    "online": online_scores,
    "online_fixed": lambda scores, keep, targets: online_scores(scores, keep, targets, fixed_variance=True),
    "offline": offline_scores,
    "offline_fixed": lambda scores, keep, targets: offline_scores(scores, keep, targets, fixed_variance=True),
    "threshold": lambda _scores, _keep, targets: threshold_scores(targets),
}


class LiraParameters(Parameters):
    """attack: online or offline, with a standard deviation per example or one ("fixed"); or a global threshold."""

    attack: Attack = "online"


def lira(
    shadows: npt.ArrayLike,
    shadow_keep: npt.ArrayLike,
    targets: npt.ArrayLike,
    target_keep: npt.ArrayLike,
    *,
    attack: Attack = "online",
) -> MetricResult:
    """Return the area under the ROC curve over all target models and examples, in [0, 1]; 0.5 is chance.

    shadows, targets: logit-scaled confidences, shape (n_models, n_examples, n_views). shadow_keep, target_keep: bool,
    shape (n_models, n_examples), whether the example was in the training set.
    table: best balanced accuracy, and true positive rate below a false positive rate of 0.1 %.
    Raises InvalidMetricInput for unequal shapes, or an example that no (or every) shadow model was trained on.
    Source: Carlini et al. 2022 (arXiv:2112.03570); tensorflow/privacy, mi_lira_2021.
    """
    axes = ("models", "examples", "views")
    scores = real_array(shadows, axes=axes, name="confidences", side="shadow")
    tested = real_array(targets, axes=axes, name="confidences", side="target")
    if scores.shape[1] != tested.shape[1]:
        raise InvalidMetricInput(
            f"unequal numbers of examples: {scores.shape[1]} of shadows, {tested.shape[1]} of targets"
        )
    keep, answers = _kept(shadow_keep, scores, side="shadow"), _kept(target_keep, tested, side="target")
    alone = np.flatnonzero(keep.all(axis=0) | ~keep.any(axis=0))
    if alone.size:
        message = f"example {alone[0]} is in all or in none of the shadow training sets"
        raise InvalidMetricInput(message, example=int(alone[0]))
    curve = roc_curve(_SCORES[attack](scores, keep, tested).ravel(), answers.ravel())
    table = {"accuracy": curve.accuracy, "true_positive_rate_below_0.001": curve.true_positive_rate_below(0.001)}
    return MetricResult(curve.area, table=table)


def _kept(values: npt.ArrayLike, scores: Float64, *, side: str) -> Bool:
    keep, shape = np.asarray(values), scores.shape[:2]
    if keep.dtype != np.bool_ or keep.shape != shape:
        raise InvalidMetricInput(
            f"{side} keep must be bool of shape {shape}, not {keep.dtype} of {keep.shape}", side=side
        )
    return keep


METRIC = Metric(
    title="LiRA",
    function=lira,
    unit="area under the ROC curve",
    ideal=0.5,
    defaults=LiraParameters,
    scope=Scope.BENCHMARK,
    bounds=(0.0, 1.0),
    source="Carlini et al. 2022 (2112.03570), algorithm 1",
    formula="mean over views of log N(h; m_in, s_in) - log N(h; m_out, s_out), m the median, s the standard deviation",
    paper_and_code="With a fixed variance the program takes the members' standard deviation for both worlds; offline "
    "it takes the density where the paper has a one-sided tail. Both as in the program.",
)


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
        raise InvalidMetricInput(f"state must be 0, 1 or 2 (trained, forgotten, never seen), not {states[unknown][0]}")
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
    pair = np.arange(len(unlearned))
    columns = zip(np.ascontiguousarray(unlearned.T), np.ascontiguousarray(retrained.T), strict=True)
    ratios = in_threads(lambda both: held_out_ratios(*both, (pair, pair), density=density), columns)
    accuracies = np.array([balanced_accuracy(*both) for both in ratios])
    forgotten = np.tile(np.repeat([True, False], pair.size), len(ratios))
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
    known = means[~np.isnan(means)]
    value = float(known.mean()) if known.size else float("nan")
    return MetricResult(value, per_example=means, table={"examples": known.size})


def membership_probabilities(correct: Bool, state: Int64) -> list[Float64]:
    """Return, by example, the membership probability of every model that forgot it, in the models' order.

    correct, state: shape (n_examples, n_models). NaN where a world's standard deviation is 0, or a world is empty.
    """
    outcomes, found = np.array([0.0, 1.0]), list[Float64]()
    for row, kinds in zip(correct, state, strict=True):
        forgotten, never = row[kinds == State.FORGOTTEN], row[kinds == State.NEVER_SEEN]
        ratio = np.full(2, np.nan)
        if forgotten.size and never.size:
            as_forgotten, as_never = _normal_density(outcomes, forgotten), _normal_density(outcomes, never)
            ratio = as_forgotten / (as_forgotten + as_never)
        found.append(ratio[forgotten.astype(np.int64)])
    return found


def _normal_density(x: Float64, sample: Bool) -> Float64:
    deviation = np.std(sample)
    if deviation == 0.0:
        return np.full(x.shape, np.nan)
    distance = (x - np.mean(sample)) / deviation
    return np.asarray(np.exp(-(distance**2) / 2.0) / np.sqrt(2 * np.pi) / deviation)


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
    pairs = zip(unlearned.T, retrained.T, strict=True)
    ratios = in_threads(lambda pair: log_ratios(*pair), pairs)
    runs = np.repeat([True, False], (len(unlearned), len(retrained)))
    areas = np.array([roc_curve(np.concatenate(pair), runs).area for pair in ratios])
    low = None
    if len(retrained) >= MIN_NEGATIVES:
        beyond = -1 - int(LOW_RATE * len(retrained))  # above all but at most 1 % of the retrained ones
        low = float(np.mean([float((ours > np.sort(theirs)[beyond]).mean()) for ours, theirs in ratios]))
    table = {"most_vulnerable": float(areas.max()), "true_positive_rate_at_0.01": low}
    return MetricResult(float(areas.mean()), per_example=areas, table=table)


def log_ratios(unlearned: Float64, retrained: Float64) -> tuple[Float64, Float64]:
    """Return log p_unlearned - log p_retrained of all runs of both sides, of one example, each run left out."""
    groups = np.arange(len(unlearned)), np.arange(len(retrained))
    return held_out_ratios(np.ascontiguousarray(unlearned), np.ascontiguousarray(retrained), groups, density="kde")


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
        "The paper attacks one target with shadow models of its own; here the runs and the retrained models of one "
        "split are both. The program's true positive rate at 1 % is 0 below 51 negatives, even for perfect separation, "
        "and its score is undefined far from all models; here the rate is the share above all but 1 % of the "
        "negatives, and logarithms are compared."
    ),
)
