"""The hockey-stick divergence of unlearned and retrained runs at a given epsilon, by a kernel estimate of the ratio."""

from dataclasses import dataclass

import numpy as np
from pydantic import Field

from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.registry import Metric, Parameters, Resampling, both_sides
from lethe.metrics.core.result import MetricResult
from lethe.metrics.distribution.kernels import Kernel, distances, kernel_values, median_bandwidth


class HockeyStickParameters(Parameters):
    """epsilon: of the order e^epsilon. regularisation: of the ratio. kernel, bandwidth: 0 for the median distance."""

    epsilon: float = Field(0.0, ge=0.0)
    regularisation: float = Field(0.125, gt=0.0)
    kernel: Kernel = "gaussian"
    bandwidth: float = Field(0.0, ge=0.0)


@dataclass(frozen=True, eq=False)
class Ratio:
    """The estimated density ratio of two samples, dQ/dP, at the points of P and at those of Q."""

    at_p: Float64
    at_q: Float64

    def divergence(self, order: float) -> float:
        """Return the estimate of Q(ratio > order) - order P(ratio > order); it may be negative."""
        return float((self.at_q > order).mean() - order * (self.at_p > order).mean())


def density_ratio(within_p: Float64, within_q: Float64, between: Float64, *, regularisation: float) -> Ratio:
    """Return the ratio dQ/dP by the de-regularised discrepancy; values may be negative.

    within_p, within_q, between: kernel values with their diagonals, shapes (p, p), (q, q), (p, q).
    Source: Chen et al. 2024 (arXiv:2409.14980), equation 71; Ribero et al. 2026 (arXiv:2601.19755).
    """
    n_p = len(within_p)
    means = between.mean(axis=1) - within_p.mean(axis=1)
    weights = np.linalg.solve(within_p + n_p * regularisation * np.eye(n_p), means)
    scale = 2.0 * (1.0 + regularisation) / regularisation
    at_p = means - within_p @ weights
    at_q = within_q.mean(axis=1) - between.mean(axis=0) - between.T @ weights
    return Ratio(1.0 + scale * at_p, 1.0 + scale * at_q)


def hockey_stick(
    unlearned: Float64,
    retrained: Float64,
    *,
    epsilon: float = 0.0,
    regularisation: float = 0.125,
    kernel: Kernel = "gaussian",
    bandwidth: float = 0.0,
) -> MetricResult:
    """Return the larger of E_g(U, R) and E_g(R, U) with g = e^epsilon, estimated; at most 1.

    E_g(P, Q) = sup over sets A of P(A) - g Q(A): the delta at which (epsilon, delta)-unlearning of these runs would
    hold; at epsilon 0 the total variation distance. The estimate is from below, may be negative, and is positive for
    equal distributions: compare with the oracle's.
    unlearned, retrained: confidences, shapes (n_models, n_examples); the numbers of models may differ.
    table: both directions.
    Source: Ribero, Schrab and Gretton 2026 (arXiv:2601.19755).
    """
    u, r = unlearned, retrained
    between = distances(u, r, kernel)
    width = bandwidth or median_bandwidth(between, kernel)
    uu, rr = (kernel_values(distances(side, side, kernel), width, kernel) for side in (u, r))
    ur, order = kernel_values(between, width, kernel), float(np.exp(epsilon))
    of_unlearned = density_ratio(rr, uu, ur.T, regularisation=regularisation).divergence(order)
    of_retrained = density_ratio(uu, rr, ur, regularisation=regularisation).divergence(order)
    table = {"unlearned_over_retrained": of_unlearned, "retrained_over_unlearned": of_retrained, "bandwidth": width}
    return MetricResult(max(of_unlearned, of_retrained), table=table)


METRIC = Metric(
    title="Hockey-stick divergence of runs",
    function=hockey_stick,
    needs=both_sides("forget_margins"),
    fewest_models=2,
    unit="probability",
    defaults=HockeyStickParameters,
    bounds=(float("-inf"), 1.0),
    resampling=Resampling.MODELS,
    n_resamples=20,
    source="Ribero, Schrab and Gretton 2026 (2601.19755)",
    formula="max over both directions of Q(w > g) - g P(w > g), w the kernel estimate of dQ/dP, g = e^epsilon",
    paper_and_code=(
        "The program's one-sided estimate of E(P, Q) is in fact of E(Q, P); as it takes the larger of both, the "
        "value is "
        "the same. It cuts nothing off at 0, nor is that done here."
    ),
)
