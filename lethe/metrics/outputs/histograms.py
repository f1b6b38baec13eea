"""Entropies and margins on the forget set: the Streisand effect, and outputs of every example side by side."""

from typing import Literal

import numpy as np
from pydantic import Field

from lethe.metrics.attacks.membership_features import entropies
from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64, Int64
from lethe.metrics.core.registry import Feature, Metric, Need, Parameters, Resampling, both_sides
from lethe.metrics.core.result import MetricResult

RESOLUTION = 4000  # divides by the usual numbers of bins


class EntropyHistogramParameters(Parameters):
    """bins: of the histograms, between 0 and log(number of classes); a divisor of 4000."""

    bins: Literal[20, 40, 50, 80, 100] = 40


def entropy_counts(probabilities: Float64) -> Int64:
    """Return how many predictions of every model have an entropy in each of 4000 equal steps up to log(n_classes).

    probabilities: shape (n_models, n_examples, n_classes). Returns shape (n_models, 4000).
    """
    rows = entropies(probabilities)
    largest = np.log(np.shape(probabilities)[2])
    steps = np.clip((rows / largest * RESOLUTION).astype(np.int64), 0, RESOLUTION - 1)
    return np.stack([np.bincount(model, minlength=RESOLUTION) for model in steps])


def entropy_histogram(unlearned: Int64, retrained: Int64, n_classes: int, *, bins: int = 40) -> MetricResult:
    """Return the Kolmogorov-Smirnov statistic between all entropies of the two sides, in [0, 1]; 0 is ideal.

    unlearned, retrained: `entropy_counts` on the forget set, shape (n_models, 4000) each; the numbers of models may
    differ. The statistic is taken at the steps of the counts. table: mean entropies, to half a step.
    arrays: `edges` (bins + 1,), `unlearned` and `retrained` densities (bins,).
    Source: Golatkar et al. 2020, the Streisand effect.
    """
    largest = float(np.log(int(n_classes)))
    shares = {side: _shares(counts) for side, counts in (("unlearned", unlearned), ("retrained", retrained))}
    distance = np.abs(np.cumsum(shares["unlearned"]) - np.cumsum(shares["retrained"])).max()
    centres = (np.arange(RESOLUTION) + 0.5) * largest / RESOLUTION
    densities = {side: share.reshape(bins, -1).sum(axis=1) * bins / largest for side, share in shares.items()}
    return MetricResult(
        float(distance),
        table={f"{side}_mean_entropy": float(share @ centres) for side, share in shares.items()},
        arrays={"edges": np.linspace(0.0, largest, bins + 1), **densities},
    )


def _shares(counts: Int64) -> Float64:
    total = counts.sum(axis=0)
    return np.asarray(total / total.sum())


_COUNTS = Feature("entropy counts", entropy_counts, ("forget_probabilities",))

ENTROPY_HISTOGRAM = Metric(
    title="Entropy on the forget set",
    function=entropy_histogram,
    needs={
        "unlearned": Need(_COUNTS),
        "retrained": Need(_COUNTS, Side.RETRAINED),
        "n_classes": Need("n_classes", Side.SHARED),
    },
    unit="KS statistic",
    defaults=EntropyHistogramParameters,
    ideal=0.0,
    bounds=(0.0, 1.0),
    resampling=Resampling.MODELS,
    source="Golatkar et al. 2020 (1911.04933), Streisand effect",
    formula="sup_t | F_u(t) - F_r(t) | over the entropies of all models and forget examples, in 4000 steps up to log C",
)


class OutputHistogramParameters(Parameters):
    """bins: per example, common to both sides. tail_percent: left out of the range at each end."""

    bins: int = Field(40, ge=1)
    tail_percent: float = Field(0.5, ge=0.0, lt=50.0)


def output_histograms(
    unlearned: Float64, retrained: Float64, *, bins: int = 40, tail_percent: float = 0.5
) -> MetricResult:
    """Return the mean accuracy of the best one-threshold attack, with the histograms it looks at.

    unlearned, retrained: margins, shapes (n_models, n_examples) each; the numbers of models may differ.
    per_example: the balanced accuracy of the best threshold, in [0.5, 1]. arrays: `edges` (n_examples, bins + 1),
    `unlearned` and `retrained` densities (n_examples, bins), `threshold` (n_examples,). Values outside the pooled
    percentiles fall into the outermost bins.
    Source: Triantafillou et al. 2024, appendix A.12, figure 18.
    """
    u, r = unlearned, retrained
    low, high = np.percentile(np.concatenate([u, r]), [tail_percent, 100.0 - tail_percent], axis=0)
    high = np.where(high > low, high, low + 1.0)
    edges = np.linspace(low, high, bins + 1, axis=1)
    best = [best_threshold(u[:, s], r[:, s]) for s in range(u.shape[1])]
    accuracy = np.array([accuracy for _, accuracy in best])
    return MetricResult(
        float(np.sort(accuracy).mean()),
        per_example=accuracy,
        arrays={
            "edges": edges,
            "unlearned": _densities(u, edges),
            "retrained": _densities(r, edges),
            "threshold": np.array([threshold for threshold, _ in best]),
        },
    )


def best_threshold(unlearned: Float64, retrained: Float64) -> tuple[float, float]:
    """Return the threshold that tells two samples apart best, and its balanced accuracy, in [0.5, 1].

    The accuracy is (1 + the Kolmogorov-Smirnov statistic) / 2; of equal ones the least threshold is taken.
    """
    points = np.unique(np.concatenate([unlearned, retrained]))
    u = np.searchsorted(np.sort(unlearned), points, side="right") / unlearned.size
    r = np.searchsorted(np.sort(retrained), points, side="right") / retrained.size
    best = int(np.argmax(np.abs(u - r)))
    return float(points[best]), float((1.0 + abs(u[best] - r[best])) / 2.0)


def _densities(values: Float64, edges: Float64) -> Float64:
    n_models, n_examples = values.shape
    bins = edges.shape[1] - 1
    width = (edges[:, -1] - edges[:, 0]) / bins
    index = np.clip(np.floor((values - edges[:, 0]) / width), 0, bins - 1).astype(np.int64)
    flat = np.bincount((index + bins * np.arange(n_examples)).ravel(), minlength=bins * n_examples)
    return np.asarray(flat.reshape(n_examples, bins) / (n_models * width[:, None]))


OUTPUT_HISTOGRAMS = Metric(
    title="Histograms of outputs",
    function=output_histograms,
    needs=both_sides("forget_margins"),
    unit="balanced accuracy",
    defaults=OutputHistogramParameters,
    per_example=True,
    bounds=(0.5, 1.0),
    source="Triantafillou et al. 2024 (2406.09073), appendix A.12, figure 18",
    formula="mean_s ( 1 + sup_t | F_u,s(t) - F_r,s(t) | ) / 2, with the densities of both sides in common bins",
    paper_and_code="The paper shows histograms; the number beside them, the best one-threshold attack, is added here.",
)
