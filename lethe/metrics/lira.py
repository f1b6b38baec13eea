"""LiRA: the likelihood-ratio membership attack with shadow models."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt

from lethe.metrics.arrays import Bool, Float64, real_array, require_same_examples
from lethe.metrics.invalid_input import InvalidMetricInput
from lethe.metrics.lira_attack import offline_scores, online_scores, threshold_scores
from lethe.metrics.registry import Direction, Metric, Parameters, Scope
from lethe.metrics.result import MetricResult
from lethe.metrics.roc import roc_curve

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
    id="lira",
    title="LiRA",
    function=lira,
    needs={},
    unit="area under the ROC curve",
    direction=Direction.LOWER,
    ideal=0.5,
    defaults=LiraParameters,
    scope=Scope.BENCHMARK,
    bounds=(0.0, 1.0),
    source="Carlini et al. 2022 (2112.03570), algorithm 1",
    formula="mean over views of log N(h; m_in, s_in) - log N(h; m_out, s_out), m the median, s the standard deviation",
    paper_and_code="With a fixed variance the program takes the members' standard deviation for both worlds; offline "
    "it takes the density where the paper has a one-sided tail. Both as in the program.",
)
