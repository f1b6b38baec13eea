"""Whether forget examples are still known a short distance away, where retrained models know them less."""

import numpy as np

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.registry import Direction, Metric, Need, Resampling
from lethe.metrics.core.result import MetricResult


def residual_knowledge(unlearned: Float64, retrained: Float64, radii: Float64) -> MetricResult:
    """Return Pr[unlearned right] / Pr[retrained right] on perturbed forget examples; 1 is ideal, above it is residual.

    unlearned, retrained: share of the perturbed copies that a model classifies correctly, shape
    (n_models, n_radii, n_examples) each; the numbers of models may differ. radii: shape (n_radii,), >= 0.
    The value is at the largest radius. arrays: `radii`, `ratio` per radius, and `residual_share`, the share of
    examples that unlearned models get right more often. NaN where retrained models are never right.
    Source: Hsu et al. 2025, residual knowledge.
    """
    known_u, known_r = unlearned.mean(axis=0), retrained.mean(axis=0)
    below = known_r.mean(axis=1)
    ratio = np.where(below > 0.0, known_u.mean(axis=1) / np.where(below > 0.0, below, 1.0), np.nan)
    return MetricResult(
        float(ratio[int(np.argmax(radii))]),
        arrays={"radii": radii, "ratio": ratio, "residual_share": (known_u > known_r).mean(axis=1)},
    )


METRIC = Metric(
    id="residual_knowledge",
    title="Residual knowledge",
    function=residual_knowledge,
    needs={
        "unlearned": Need("perturbed_accuracy"),
        "retrained": Need("perturbed_accuracy", Side.RETRAINED),
        "radii": Need("perturbation_radii", Side.SHARED),
    },
    unit="ratio",
    direction=Direction.TOWARDS_RETRAINED,
    bounds=(0.0, float("inf")),
    ideal=1.0,
    resampling=Resampling.MODELS,
    source="Hsu et al. 2025 (2601.22359), residual knowledge",
    formula="r_tau = Pr[ u(x') = y ] / Pr[ r(x') = y ], x' within a distance tau of a forget example x",
    paper_and_code=(
        "No code is public. The ratio here is of the means over forget examples and models, which stays defined when "
        "retrained models never recognise one example."
    ),
)
