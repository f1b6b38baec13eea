"""Forget examples that a loss attack recognises in model after model."""

import numpy as np
import numpy.typing as npt
from pydantic import Field
from scipy.stats import binom

from lethe.metrics.attacks.scalar_attack import fit_lbfgs
from lethe.metrics.core.arrays import Bool, Float64, Int64
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.processors import one_blas_thread
from lethe.metrics.core.registry import Direction, Feature, Metric, Parameters, both_sides
from lethe.metrics.core.result import MetricResult


class FoldParameters(Parameters):
    """n_folds: of the cross-validation. seed: draws test examples and folds."""

    n_folds: int = Field(10, ge=2)
    seed: int = Field(0, ge=0)


def consistent_unforgettability(unlearned: Bool, retrained: Bool) -> MetricResult:
    """Return the share of forget examples that the attack calls members in every model, in [0, 1].

    unlearned, retrained: whether an example was called a member, bool, shape (n_models, n_examples), from `hits`.
    per_example: in how many unlearned models. table: the same share of the retrained models; for both, the share hit in
    at least half of the models; and what independent hits at the retrained models' mean rate would give.
    Source: Cadet et al. 2024 (arXiv:2410.01276), section 5.7 and figure 2, with 10 models.
    """
    u, r = np.asarray(unlearned, np.float64), np.asarray(retrained, np.float64)
    n_models, rate = len(u), float(r.mean())
    table = {
        "half": float((u.mean(axis=0) >= 0.5).mean()),
        "retrained": float(r.all(axis=0).mean()),
        "retrained_half": float((r.mean(axis=0) >= 0.5).mean()),
        "expected_all": rate**n_models,
        "expected_half": float(binom.sf(np.ceil(n_models / 2) - 1, n_models, rate)),
    }
    return MetricResult(float(u.all(axis=0).mean()), per_example=u.sum(axis=0), table=table)


def chance_bound(expected: float, n_examples: int) -> float:
    """Return the 97.5th percentile of the share of examples hit in every model, if hits were independent.

    expected: the probability that an example is hit in every model, `expected_all`.
    """
    return float(binom.ppf(0.975, n_examples, expected)) / n_examples


def hits(forget: Float64, test: Float64, *, n_folds: int = 10, seed: int = 0) -> Bool:
    """Return whether each forget example is called a member by an attack that was not trained on it.

    forget, test: losses, shape (n_models, n_forget) and (n_models, n_test). Equally many of both are used, in
    ascending order of loss, so that the order of examples does not matter; n_test may not be below n_forget.
    Returns bool, shape (n_models, n_forget). Source: Cadet et al. 2024, section 5.7: each fold is predicted once.
    """
    n_forget, n_test = forget.shape[1], test.shape[1]
    if n_test < n_forget or not 2 <= n_folds <= n_forget:
        raise InvalidMetricInput(
            f"as many test as forget examples and 2 to {n_forget} folds are needed: {n_test} test examples, "
            f"{n_forget} forget examples, {n_folds} folds"
        )
    generator = np.random.default_rng(seed)
    chosen = np.sort(generator.permutation(n_test)[:n_forget])
    folds = np.concatenate([generator.permutation(n_forget) % n_folds for _ in range(2)])
    with one_blas_thread():
        return np.array(
            [_hits_of_model(x, np.sort(y)[chosen], folds, n_folds) for x, y in zip(forget, test, strict=True)]
        )


def _hits_of_model(forget: npt.NDArray[np.float64], test: npt.NDArray[np.float64], folds: Int64, n_folds: int) -> Bool:
    order = np.argsort(forget, kind="stable")
    values = np.concatenate((forget[order], test))
    member = np.repeat([True, False], forget.size)
    called = np.empty(forget.size, dtype=bool)
    for fold in range(n_folds):
        slope, intercept = fit_lbfgs(values[folds != fold], member[folds != fold])
        held = order[folds[: forget.size] == fold]
        called[held] = slope * forget[held] + intercept > 0
    return called


HITS = Feature("loss_attack_hits", hits, ("forget_loss", "test_loss"), parameters=("n_folds", "seed"))

METRIC = Metric(
    id="consistent_unforgettability",
    title="Consistent unforgettability",
    function=consistent_unforgettability,
    needs=both_sides(HITS),
    unit="share of the forget set",
    direction=Direction.TOWARDS_RETRAINED,
    defaults=FoldParameters,
    per_example=True,
    bounds=(0.0, 1.0),
    source="Cadet et al. 2024 (2410.01276), section 5.7",
    formula="mean_x [hit_i(x) for all i], hit: cross-validated logistic regression on losses says member",
    paper_and_code="No program is published. The paper uses 10 models; with more, fewer examples are hit in all.",
)
