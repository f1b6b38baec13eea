"""Attacks and divergences of whole runs: a classifier of all confidences together, the hockey-stick divergence."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from pydantic import Field
from scipy.optimize import minimize
from scipy.special import expit

from lethe.metrics.attacks.likelihood_attack import roc_curve
from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64, Int64
from lethe.metrics.core.compiled import one_blas_thread
from lethe.metrics.core.registry import Metric, Need, Parameters, Resampling, both_sides
from lethe.metrics.core.result import MetricResult
from lethe.metrics.distribution.two_sample_test import Kernel, distances, kernel_values, median_bandwidth
from lethe.metrics.scoring.arrays import drawn_order


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


HOCKEY_STICK = Metric(
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
        "The program's one-sided estimate of E(P, Q) is in fact of E(Q, P); as it takes the larger of both, the value "
        "is the same. It cuts nothing off at 0, nor is that done here."
    ),
)


INVERSE_PENALTY = 0.01
MIN_CURVE_SIZE, DRAWS_PER_SIZE = 8, 3


class JointAuditParameters(Parameters):
    """n_folds: held out in turn, over runs. penalty: C of the regression. seed: draws the folds."""

    n_folds: int = Field(5, ge=2)
    penalty: float = Field(INVERSE_PENALTY, gt=0.0)
    seed: int = Field(0, ge=0)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """margins: of every run by a classifier that has not seen it, unlearned runs first; positive means unlearned."""

    margins: Float64
    labels: Int64
    folds: Int64

    @property
    def fold_aucs(self) -> Float64:
        """The area under the ROC curve within every fold."""
        chosen = [self.folds == fold for fold in range(int(self.folds.max()) + 1)]
        return np.array([roc_curve(self.margins[rows], self.labels[rows] == 1).area for rows in chosen])

    @property
    def pooled_auc(self) -> float:
        """The area under the ROC curve over all held-out margins, which come from different classifiers."""
        return roc_curve(self.margins, self.labels == 1).area

    @property
    def accuracy(self) -> float:
        """The share of runs called rightly."""
        return float(((self.margins > 0.0) == (self.labels == 1)).mean())


def joint_audit(
    unlearned: Float64, retrained: Float64, *, n_folds: int = 5, penalty: float = INVERSE_PENALTY, seed: int = 0
) -> MetricResult:
    """Return the held-out area under the ROC curve of the classifier, mean over folds, in [0, 1]; 0.5 is chance.

    unlearned, retrained: confidences on the forget set, shapes (n_models, n_examples); the numbers of models may
    differ. Examples are standardised within the training folds. With fewer runs than folds, as many folds as runs.
    table: the pooled AUC, the accuracy, and the AUC with fewer runs of each side (power curve).
    Compare with the oracle's. A copy of the retrained models is far below 0.5, for the twin of a held-out run is in
    training under the other label; a note says how many runs are copies.
    """
    u, r = unlearned, retrained
    with one_blas_thread():
        found = held_out(u, r, audit_folds(u, r, n_folds=n_folds, seed=seed), penalty=penalty)
        curve = list(_power_curve(u, r, n_folds=n_folds, penalty=penalty, seed=seed))
    table: dict[str, float | list[float]] = {
        "pooled_auc": found.pooled_auc,
        "accuracy": found.accuracy,
        "runs": [size for size, _ in curve],
        "auc": [auc for _, auc in curve],
    }
    return MetricResult(float(found.fold_aucs.mean()), table=table, notes=_copies(u, r))


def joint_audit_all(  # noqa: PLR0917  a metric's arrays are its arguments
    unlearned: Float64,
    retrained: Float64,
    unlearned_retain: Float64,
    retrained_retain: Float64,
    unlearned_test: Float64,
    retrained_test: Float64,
    *,
    n_folds: int = 5,
    penalty: float = INVERSE_PENALTY,
    seed: int = 0,
) -> MetricResult:
    """Return `joint_audit` on the confidences of forget, retain and test examples side by side.

    Shapes (n_models, n_examples) each; the arrays of one side are of the same models.
    """
    sides = (unlearned, unlearned_retain, unlearned_test), (retrained, retrained_retain, retrained_test)
    return joint_audit(*(np.concatenate(parts, axis=1) for parts in sides), n_folds=n_folds, penalty=penalty, seed=seed)


def audit_folds(unlearned: Float64, retrained: Float64, *, n_folds: int, seed: int) -> Int64:
    """Return the fold of every run, unlearned runs first; each side is spread evenly, in an order drawn by the seed."""
    n_folds = min(n_folds, len(unlearned), len(retrained))
    rng = np.random.default_rng([seed, len(unlearned), len(retrained)])
    folds = []
    for runs in (unlearned, retrained):
        fold = np.empty(len(runs), np.int64)
        fold[drawn_order(runs, rng)] = np.arange(len(runs)) % n_folds
        folds.append(fold)
    return np.concatenate(folds)


def held_out(unlearned: Float64, retrained: Float64, folds: Int64, *, penalty: float = INVERSE_PENALTY) -> HeldOut:
    """Return the margin of every run by the classifier that was fitted without its fold."""
    runs = np.concatenate((unlearned, retrained))
    labels = np.repeat(np.array([1, 0], np.int64), (len(unlearned), len(retrained)))
    margins = np.empty(len(runs))
    for fold in range(int(folds.max()) + 1):
        held = folds == fold
        mean, deviation = runs[~held].mean(axis=0), runs[~held].std(axis=0)
        constant = np.ptp(runs[~held], axis=0) == 0.0
        scaled = (runs - mean) / np.where(constant, 1.0, deviation)
        scaled[:, constant] = np.where(held[:, None], scaled[:, constant], 0.0)
        weights, intercept = fitted(scaled[~held], labels[~held], penalty=penalty)
        margins[held] = (scaled[held] * weights).sum(axis=1) + intercept  # equal runs have equal bits
    return HeldOut(margins, labels, folds)


def fitted(rows: Float64, labels: Int64, *, penalty: float) -> tuple[Float64, float]:
    """Return weights and intercept that minimise |w|^2 / 2 + C sum of losses, by Newton's method.

    More examples than runs cost no more: the weights lie in the span of the rows.
    """
    left, sizes, right = np.linalg.svd(rows, full_matrices=False)
    coordinates = np.column_stack((left * sizes, np.ones(len(rows))))
    ridge = np.append(np.ones(sizes.size), 0.0)
    signs = 2.0 * labels - 1.0

    def loss(point: Float64) -> float:
        return float(0.5 * (ridge * point**2).sum() + penalty * np.logaddexp(0.0, -signs * (coordinates @ point)).sum())

    def gradient(point: Float64) -> Float64:
        return np.asarray(ridge * point + penalty * coordinates.T @ (expit(coordinates @ point) - labels))

    def hessian(point: Float64) -> Float64:
        p = expit(coordinates @ point)
        return np.asarray(np.diag(ridge) + penalty * (coordinates.T * (p * (1.0 - p))) @ coordinates)

    start = np.zeros(ridge.size)
    found = minimize(loss, start, jac=gradient, hess=hessian, method="trust-exact", options={"gtol": 1e-10}).x
    return np.asarray(right.T @ found[:-1]), float(found[-1])


def _power_curve(u: Float64, r: Float64, *, n_folds: int, penalty: float, seed: int) -> Iterator[tuple[int, float]]:
    """Yield numbers of runs of each side below the full number, and the mean AUC of a few draws of so many."""
    size = MIN_CURVE_SIZE
    rng = np.random.default_rng([seed, len(u), len(r), 1])
    while size < min(len(u), len(r)):
        aucs = []
        for _ in range(DRAWS_PER_SIZE):
            first, second = (side[drawn_order(side, rng)[:size]] for side in (u, r))
            folds = audit_folds(first, second, n_folds=n_folds, seed=seed)
            aucs.append(held_out(first, second, folds, penalty=penalty).fold_aucs.mean())
        yield size, float(np.mean(aucs))
        size *= 2


def _copies(u: Float64, r: Float64) -> tuple[str, ...]:
    retrained = {row.tobytes() for row in r}
    n = sum(row.tobytes() in retrained for row in u)
    return (f"{n} unlearned runs are copies of retrained models: the audit means nothing for them",) if n else ()


METRIC = Metric(
    title="Joint audit on the forget set",
    function=joint_audit,
    needs=both_sides("forget_margins"),
    fewest_models=2,
    unit="area under the ROC curve over runs",
    defaults=JointAuditParameters,
    bounds=(0.0, 1.0),
    source="defined by Lethe",
    formula=(
        "mean over 5 folds of runs of the held-out AUC of an L2 logistic regression (C = 0.01) on a run's standardised "
        "confidences, label unlearned or retrained"
    ),
)

ALL_SETS = replace(
    METRIC,
    id="joint_audit_all",
    title="Joint audit on forget, retain and test examples",
    function=joint_audit_all,
    needs=both_sides("forget_margins")
    | {
        f"{side}_{part}": Need(f"{part}_margins", side)
        for part in ("retain", "test")
        for side in (Side.UNLEARNED, Side.RETRAINED)
    },
    formula="as joint_audit, on the confidences of forget, retain and test examples side by side",
)
