"""LiRA: the likelihood-ratio membership attack with shadow models."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from lethe.metrics.attacks.likelihood_attack import roc_curve
from lethe.metrics.core.arrays import Bool, Float64, real_array, require_same_examples
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Metric, Parameters, Scope
from lethe.metrics.core.result import MetricResult

_TINY = 1e-30


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
    log_in = np.asarray(norm.logpdf(targets, np.median(members, 1), spread_in + _TINY))
    log_out = np.asarray(norm.logpdf(targets, np.median(others, 1), spread_out + _TINY))
    return np.asarray((log_in - log_out).mean(axis=2), dtype=np.float64)


def offline_scores(scores: Float64, keep: Bool, targets: Float64, *, fixed_variance: bool = False) -> Float64:
    """Return minus the log likelihood of a non-member, shape (n_targets, n_examples); shapes as `online_scores`.

    Only shadow models without the example are used. Source: as above, `generate_ours_offline`. The paper's one-sided
    test is not what the program computes: a target far below the non-members scores as high as one far above.
    """
    others = _stacked(scores, ~keep)
    spread = np.std(others) if fixed_variance else np.std(others, 1)
    log_out = np.asarray(norm.logpdf(targets, np.median(others, 1), spread + _TINY))
    return np.asarray(-log_out.mean(axis=2), dtype=np.float64)


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
    require_same_examples(shadow=scores, target=tested)
    keep, answers = _kept(shadow_keep, scores, side="shadow"), _kept(target_keep, tested, side="target")
    alone = np.flatnonzero(keep.all(axis=0) | ~keep.any(axis=0))
    if alone.size:
        example = int(alone[0])
        raise InvalidMetricInput(f"example {example} is in all or in none of the shadow training sets", example=example)
    curve = roc_curve(_SCORES[attack](scores, keep, tested).ravel(), answers.ravel())
    table = {"accuracy": curve.accuracy, "true_positive_rate_below_0.001": curve.true_positive_rate_below(0.001)}
    return MetricResult(curve.area, table=table)


def _kept(values: npt.ArrayLike, scores: Float64, *, side: str) -> Bool:
    keep = np.asarray(values)
    if keep.dtype != np.bool_ or keep.shape != scores.shape[:2]:
        raise InvalidMetricInput(
            f"{side} keep must be bool of shape {scores.shape[:2]}, not {keep.dtype} of {keep.shape}", side=side
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
