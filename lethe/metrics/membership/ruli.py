"""RULI on the runs of one split: the likelihood of an unlearned run among unlearned against among retrained models."""

import numpy as np

from lethe.metrics.attacks.likelihood_attack import held_out_ratios
from lethe.metrics.attacks.roc import roc_curve
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.processors import in_threads
from lethe.metrics.core.registry import Direction, Metric, both_sides
from lethe.metrics.core.result import MetricResult

LOW_RATE, LEAST_NEGATIVES = 0.01, 51  # fewer negatives hold no point at the rate


def ruli(unlearned: Float64, retrained: Float64) -> MetricResult:
    """Return the area under the ROC curve of p_unlearned / (p_unlearned + p_retrained), mean over examples.

    unlearned, retrained: confidences, shapes (n_models, n_examples); the numbers of models may differ. Densities are
    sums of Gaussian kernels of bandwidth 1 on confidences; a run is left out of both sides' densities, by its number.
    per_example: the area of every example. table: the most vulnerable example's, and the true positive rate at 1 %
    over all examples, None below 51 retrained models, where the published reading is always 0.
    The logarithm of the ratio is used, which ranks alike and is defined far from all models.
    Source: Naderloui et al. 2025 (RULI, arXiv:2506.13009).
    """
    u, r = unlearned, retrained
    ratios = in_threads(lambda example: log_ratios(u[:, example], r[:, example]), range(u.shape[1]))
    runs = np.repeat([True, False], (len(u), len(r)))
    areas = np.array([roc_curve(np.concatenate(pair), runs).area for pair in ratios])
    low = None
    if len(r) >= LEAST_NEGATIVES:
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


METRIC = Metric(
    id="ruli",
    title="RULI on one split",
    function=ruli,
    needs=both_sides("forget_margins"),
    fewest_models=2,
    unit="area under the ROC curve",
    direction=Direction.LOWER,
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
