"""Whether the entropies of the predictions on the forget set give the unlearning away (the Streisand effect)."""

from typing import Literal

import numpy as np

from lethe.metrics.attacks.membership_features import entropies
from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64, Int64
from lethe.metrics.core.registry import Direction, Feature, Metric, Need, Parameters, Resampling
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

METRIC = Metric(
    id="entropy_histogram",
    title="Entropy on the forget set",
    function=entropy_histogram,
    needs={
        "unlearned": Need(_COUNTS),
        "retrained": Need(_COUNTS, Side.RETRAINED),
        "n_classes": Need("n_classes", Side.SHARED),
    },
    unit="KS statistic",
    direction=Direction.LOWER,
    defaults=EntropyHistogramParameters,
    ideal=0.0,
    bounds=(0.0, 1.0),
    resampling=Resampling.MODELS,
    source="Golatkar et al. 2020 (1911.04933), Streisand effect",
    formula="sup_t | F_u(t) - F_r(t) | over the entropies of all models and forget examples, in 4000 steps up to log C",
)
