"""A membership attack on one number per example: logistic regression, scored on held-out examples of random splits.

The optimiser is SciPy's L-BFGS with the settings and the objective of scikit-learn's `LogisticRegression`, so that it
stops where the published programs stop; Newton's exact optimum classifies some held-out examples differently.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from lethe.metrics.arrays import Bool, Float64, Int64, model_rows, require_same_models
from lethe.metrics.compiled import compiled
from lethe.metrics.invalid_input import InvalidMetricInput
from lethe.metrics.processors import one_blas_thread

SPLIT_SEED = 123
FEWEST_EXAMPLES = 6  # of each set, so that a tenth of both holds one of each
_OPTIONS: Any = {"maxiter": 100, "maxls": 50, "gtol": 1e-4, "ftol": 64 * np.finfo(np.float64).eps}


def attack_accuracies(first: npt.ArrayLike, second: npt.ArrayLike, *, n_splits: int = 10, seed: int = 0) -> Float64:
    """Return the attack's mean held-out accuracy for every model, shape (n_models,), in [0, 1]; 0.5 is chance.

    first, second: one value per example, shape (n_models, n_first) and (n_models, n_second), at least 6 each.
    Of the larger set a random part is used. Examples are taken in ascending order of their value, so that their
    order does not matter, and `seed` draws the same ranks for every model.
    """
    a, b = model_rows(first, name="values", side="first"), model_rows(second, name="values", side="second")
    require_same_models(first=a, second=b)
    pairs = (shuffled(x, y, seed=seed) for x, y in zip(np.sort(a), np.sort(b), strict=True))
    with one_blas_thread():
        return np.array([split_accuracies(x, y, n_splits=n_splits).mean() for x, y in pairs])


def shuffled(first: Float64, second: Float64, *, seed: int) -> tuple[Float64, Float64]:
    """Return both sets in random order, cut to the size of the smaller; shape (n,) each."""
    order = np.random.RandomState(seed)  # the generator of the published programs
    mixed = {}
    for name, values in (("second", second), ("first", first)):
        mixed[name] = values.copy()
        order.shuffle(mixed[name])
    n = min(first.size, second.size)
    return mixed["first"][:n], mixed["second"][:n]


def split_accuracies(first: Float64, second: Float64, *, n_splits: int = 10) -> Float64:
    """Return the accuracy on the held-out tenth of every split, shape (n_splits,), of two sets of equal size.

    0.5 if all values are equal: a constant carries no information.
    Source: Triantafillou et al. 2024, A.11; Cadet et al. 2024 (arXiv:2410.01276), program: `StratifiedShuffleSplit`
    with random_state 123, 10 % held out. Their text speaks of 10-fold cross-validation.
    """
    if first.size < FEWEST_EXAMPLES or first.size != second.size:
        raise InvalidMetricInput(
            f"a split that holds out a tenth needs two sets of equal size with at least {FEWEST_EXAMPLES} examples, "
            f"not {first.size} and {second.size}"
        )
    values = np.concatenate((first, second))
    if (values == values[0]).all():
        return np.full(n_splits, 0.5)
    member = np.repeat([False, True], first.size)
    splits = stratified_splits(first.size, n_splits)
    return np.array([_held_out_accuracy(values, member, train, held) for train, held in splits])


@lru_cache(maxsize=8)
def stratified_splits(size: int, n_splits: int) -> tuple[tuple[Int64, Int64], ...]:
    """Return (train, held-out) positions of every split of `size` examples of each of two classes."""
    from sklearn.model_selection import StratifiedShuffleSplit  # noqa: PLC0415  slow to import; attacks alone need it

    classes = np.repeat([0, 1], size)
    return tuple(StratifiedShuffleSplit(n_splits, test_size=0.1, random_state=SPLIT_SEED).split(classes, classes))


def _held_out_accuracy(values: Float64, member: Bool, train: Int64, held: Int64) -> float:
    slope, intercept = fit_logistic(values[train], member[train])
    return float(np.mean((slope * values[held] + intercept > 0) == member[held]))


def fit_logistic(values: Float64, member: Bool) -> tuple[float, float]:
    """Return slope and intercept of the L2-penalised logistic regression (C = 1; the intercept is free)."""
    found = minimize(_objective, np.zeros(2), args=(values, member), jac=True, method="L-BFGS-B", options=_OPTIONS)
    return float(found.x[0]), float(found.x[1])


@compiled
def _objective(weights: Float64, values: Float64, member: Bool) -> tuple[float, Float64]:
    loss, by_slope, by_intercept = 0.0, 0.0, 0.0
    for i in range(values.size):
        z = weights[0] * values[i] + weights[1]
        small = np.exp(-abs(z))
        loss += np.log1p(small) + max(z, 0.0) - (z if member[i] else 0.0)
        residual = (1.0 / (1.0 + small) if z > 0 else small / (1.0 + small)) - member[i]
        by_slope += residual * values[i]
        by_intercept += residual
    n = values.size
    gradient = np.array([by_slope / n + weights[0] / n, by_intercept / n])
    return loss / n + 0.5 * weights[0] ** 2 / n, gradient
