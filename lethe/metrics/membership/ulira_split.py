"""U-LiRA on one split: the models that unlearned against those that never saw the forget set."""

import numpy as np

from lethe.metrics.attacks.likelihood_attack import (
    Density,
    DensityParameters,
    attack_result,
    balanced_accuracy,
    held_out_ratios,
)
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.processors import in_threads
from lethe.metrics.core.registry import Direction, Metric, Resampling, both_sides
from lethe.metrics.core.result import MetricResult


def ulira_split(unlearned: Float64, retrained: Float64, *, density: Density = "normal") -> MetricResult:
    """Return the attack's mean accuracy over forget examples, in [0, 1]; 0.5 is ideal.

    unlearned, retrained: logit-scaled confidences, shape (n_models, n_examples) each, at least 3 models, paired.
    Pair i is scored under densities fitted to all other pairs; a ratio of exactly 1 counts half, so that equal sides
    give 0.5. The kernel density takes time in the square of n_models.
    per_example: accuracy of each. table: area under the ROC curve over all examples and models, and its true positive
    rates at low false positive rates.
    Source: Hayes et al. 2024 (arXiv:2403.01218); Cadet et al. 2024 (arXiv:2410.01276), section 5.5.2.
    """
    n_models = len(unlearned)
    pair = np.arange(n_models)
    columns = zip(np.ascontiguousarray(unlearned.T), np.ascontiguousarray(retrained.T), strict=True)
    ratios = in_threads(lambda both: held_out_ratios(*both, (pair, pair), density=density), columns)
    accuracies = np.array([balanced_accuracy(x, y) for x, y in ratios])
    forgotten = np.tile(np.repeat([True, False], n_models), len(ratios))
    return attack_result(accuracies, np.concatenate([part for both in ratios for part in both]), forgotten)


METRIC = Metric(
    id="ulira_split",
    title="U-LiRA on one split",
    function=ulira_split,
    needs=both_sides("forget_margins"),
    unit="accuracy",
    direction=Direction.LOWER,
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
