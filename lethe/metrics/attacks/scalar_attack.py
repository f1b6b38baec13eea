"""Membership inference from one number per example: logistic regression on stratified random splits.

The regression is scikit-learn's default (L2 penalty, C = 1, free intercept). Two unknowns need no general solver:
Newton's method finds the optimum itself. Published programs call scikit-learn, whose solver stops short of it, so that
an example at the threshold may fall on the other side (about one fit in a hundred with 20 held-out examples); solver
"lbfgs" repeats them: SciPy's L-BFGS with the settings and the objective of scikit-learn's `LogisticRegression`. Members
have label 1 and follow the others, as in the published programs.

The softmax attack is the same on the softmax vector, with one split per run; the MIAU paper gives no hyper-parameters.
Run i draws with seed i, and the draw is the same for the unlearned, the retrained and the original model of that run,
so that its noise cancels in differences. Examples are drawn by position: their order is part of the seed.
"""

from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from lethe.metrics.core.arrays import Bool, Float64, Int64
from lethe.metrics.core.compiled import compiled, in_threads, one_blas_thread, slices
from lethe.metrics.core.invalid_input import InvalidMetricInput

CONVERGED = 1e-10
MAX_STEPS = 100
MAX_BATCH = 2**22  # numbers fitted at once: 32 MiB


def softmax_attack_percent(
    members: Float64, others: Float64, *, task: int, n_splits: int, test_share: float, seed: int
) -> Float64:
    """Return the held-out accuracy of the attack on every model in percent, shape (n_models,).

    members, others: probabilities, shapes (n_models, n_members, n_classes) and (n_models, n_others, n_classes).
    task: number of the pair of sets, part of the seed.
    Raises InvalidMetricInput for sets too small to hold out one example of each.
    """
    a, b = members, others
    size = min(a.shape[1], b.shape[1])
    n_held = held_out(size, test_share)
    at_once = max(1, MAX_BATCH // (2 * size * a.shape[2]))
    result = np.empty(a.shape[0], np.float64)
    for start in range(0, a.shape[0], at_once):
        runs = range(start, min(start + at_once, a.shape[0]))
        result[runs.start : runs.stop] = _attack(a, b, runs, n_held=n_held, n_splits=n_splits, seeds=(seed, task))
    return 100.0 * result


def _attack(
    members: Float64, others: Float64, runs: range, *, n_held: int, n_splits: int, seeds: tuple[int, int]
) -> Float64:
    """Return the mean accuracy over splits of each of these runs; run i draws from a stream of its own."""
    size = min(members.shape[1], others.shape[1])
    streams = [np.random.default_rng([*seeds, run]) for run in runs]
    accuracies = []
    for _ in range(n_splits):
        held = np.empty((len(runs), 2 * n_held, members.shape[2]))
        train = np.empty((len(runs), 2 * (size - n_held), members.shape[2]))
        for place, (run, rng) in enumerate(zip(runs, streams, strict=True)):
            train[place], held[place] = drawn_rows(members[run], others[run], n_held=n_held, rng=rng)
        weights = fit_logistic(train, _labels(size - n_held))
        outputs = (held @ weights[:, :-1, None])[..., 0] + weights[:, -1:]
        accuracies.append(((outputs > 0.0) == (_labels(n_held) == 1.0)).mean(axis=1))
    return np.asarray(np.mean(accuracies, axis=0))


def held_out(size: int, test_share: float) -> int:
    """Return how many of `size` examples of each set are held out, at least one.

    Raises InvalidMetricInput if none would be left to train with.
    """
    n_held = max(1, round(size * test_share))
    if size - n_held < 1:
        raise InvalidMetricInput(f"an attack needs at least 2 examples of each set, not {size}")
    return n_held


def drawn_rows(members: Float64, others: Float64, *, n_held: int, rng: np.random.Generator) -> tuple[Float64, Float64]:
    """Return the rows of one model that train an attack and those held out, members first, as many of each set.

    members, others: shapes (n_members, n_features) and (n_others, n_features); the larger set is cut to the smaller.
    """
    size = min(len(members), len(others))
    chosen = [values[rng.permutation(len(values))[:size]] for values in (members, others)]
    return np.concatenate([c[n_held:] for c in chosen]), np.concatenate([c[:n_held] for c in chosen])


def _labels(size: int) -> Float64:
    return np.repeat(np.array([1.0, 0.0]), size)


def fit_logistic(features: Float64, labels: Float64) -> Float64:
    """Return the weights and, last, the intercept of every model's logistic regression, (n_models, n_features + 1).

    features: shape (n_models, n_examples, n_features). labels: shape (n_examples,), 0 or 1. The L2 penalty has
    C = 1; the intercept is free.
    """
    return np.stack(in_threads(lambda rows: _fit(np.ascontiguousarray(rows), labels, 1.0), features))


@compiled
def _fit(features: Float64, labels: Float64, ridge: float) -> Float64:
    n_rows, n_features = features.shape
    size = n_features + 1
    weights, start, step = np.zeros(size), np.zeros(size), np.zeros(size)
    row = np.ones(size)
    descent, fraction, first = 0.0, 1.0, True
    for _ in range(MAX_STEPS):
        gradient = ridge * weights
        gradient[n_features] = 0.0
        hessian = np.zeros((size, size))
        for i in range(n_rows):
            row[:n_features] = features[i]
            output = 0.0
            for a in range(size):
                output += weights[a] * row[a]
            p = 1.0 / (1.0 + np.exp(-output))
            error, spread = p - labels[i], p * (1.0 - p)
            for a in range(size):
                gradient[a] += error * row[a]
                scaled = spread * row[a]
                for b in range(a + 1):
                    hessian[a, b] += scaled * row[b]
        slope = (gradient * step).sum()
        if not first and slope > 0.9 * descent + CONVERGED and fraction > 1e-8:  # far past the minimum along the step
            fraction *= 0.5
            weights = start + fraction * step
            continue
        for a in range(size):
            hessian[a, a] += ridge if a < n_features else 1e-12
            hessian[:a, a] = hessian[a, :a]
        step = -np.linalg.solve(hessian, gradient)
        descent = -(gradient * step).sum()
        if descent < CONVERGED:
            break
        first, fraction = False, 1.0
        start = weights
        weights = start + step
    return weights


NO_SKILL = 0.5
Solver = Literal["newton", "lbfgs"]
Splits = tuple[Int64, Int64]
_LBFGS: Any = {"maxiter": 100, "maxls": 50, "gtol": 1e-4, "ftol": 64 * np.finfo(np.float64).eps}


def attack_accuracy(
    members: Float64, others: Float64, *, n_splits: int, test_share: float, seed: int, solver: Solver = "newton"
) -> Float64:
    """Return the mean held-out accuracy of the attack on every model, shape (n_models,).

    members, others: the number per example, shapes (n_models, n_members) and (n_models, n_others), finite. The larger
    set is cut to the size of the smaller by a seeded draw, the same for all models. Values are sorted first, so the
    order of the examples has no effect.
    A model whose values are all equal has accuracy 0.5 by definition: nothing can be distinguished.
    Raises InvalidMetricInput if the sets are too small to hold out one example of each.
    """
    size = min(members.shape[1], others.shape[1])
    values = np.concatenate([_drawn(others, size, seed=seed), _drawn(members, size, seed=seed)], axis=1)
    labels = np.repeat(np.array([0, 1], np.int64), size)
    train, held = stratified_splits(size, n_splits=n_splits, test_share=test_share, seed=seed)
    return np.asarray(split_accuracies(values, labels, train, held, solver=solver).mean(axis=1))


def _drawn(values: Float64, size: int, *, seed: int) -> Float64:
    ordered = np.sort(values, axis=1)
    if values.shape[1] == size:
        return ordered
    kept = np.random.default_rng(seed).permutation(values.shape[1])[:size]
    return ordered[:, np.sort(kept)]


@lru_cache(maxsize=16)
def stratified_splits(size: int, *, n_splits: int, test_share: float, seed: int) -> Splits:
    """Return positions of training and held-out examples, shapes (n_splits, n_train) and (n_splits, n_held).

    size: examples of each class; label 0 comes first. The splits are scikit-learn's StratifiedShuffleSplit.
    Raises InvalidMetricInput if either part would not hold both classes.
    """
    n_held = int(np.ceil(2 * size * test_share))
    if n_held < 2 or 2 * size - n_held < 2:
        raise InvalidMetricInput(
            f"an attack that holds out {test_share:g} of {2 * size} examples cannot hold out one of each set; "
            f"at least {int(np.floor(0.5 / test_share)) + 1} members and as many others are needed"
        )
    from sklearn.model_selection import StratifiedShuffleSplit  # noqa: PLC0415  slow to import, needed here alone

    splitter = StratifiedShuffleSplit(n_splits=n_splits, test_size=test_share, random_state=seed)
    labels = np.repeat([0, 1], size)
    parts = list(splitter.split(labels[:, None], labels))
    return np.array([train for train, _ in parts], np.int64), np.array([held for _, held in parts], np.int64)


def split_accuracies(
    values: npt.ArrayLike, labels: npt.ArrayLike, train: Int64, held: Int64, *, solver: Solver = "newton"
) -> Float64:
    """Return the held-out accuracy of every model and split, shape (n_models, n_splits).

    values: shape (n_models, n_examples). labels: shape (n_examples,), 0 or 1. train, held: positions of the examples,
    shapes (n_splits, n_train) and (n_splits, n_held). "lbfgs" computes with float32 values in float32, as scikit-learn.
    """
    if solver == "lbfgs":
        member, given = np.asarray(labels) == 1, np.asarray(values)
        published = _published_in_float32 if given.dtype == np.float32 else _published
        with one_blas_thread():
            return np.array([published(row, member, train, held) for row in given])
    numbers = np.ascontiguousarray(values, np.float64)
    membership = np.ascontiguousarray(labels, np.float64)
    splits = np.ascontiguousarray(train), np.ascontiguousarray(held)
    return np.concatenate(in_threads(lambda part: _fit_all(numbers[part], membership, *splits), slices(len(numbers))))


def _published(given: npt.NDArray[Any], member: Bool, train: Int64, held: Int64) -> list[float]:
    values = np.ascontiguousarray(given, np.float64)
    if values.min() == values.max():
        return [NO_SKILL] * len(train)
    fits = [fit_lbfgs(values[rows], member[rows]) for rows in train]
    return [
        float(np.mean((slope * values[rows] + intercept > 0) == member[rows]))
        for (slope, intercept), rows in zip(fits, held, strict=True)
    ]


def _published_in_float32(values: npt.NDArray[np.float32], member: Bool, train: Int64, held: Int64) -> list[float]:
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415  slow to import, needed here alone

    if values.min() == values.max():
        return [NO_SKILL] * len(train)
    fits = [LogisticRegression().fit(values[rows, None], member[rows]) for rows in train]
    return [float(fit.score(values[rows, None], member[rows])) for fit, rows in zip(fits, held, strict=True)]


def fit_lbfgs(values: Float64, member: Bool) -> tuple[float, float]:
    """Return slope and intercept where scikit-learn's solver stops (C = 1; the intercept is free).

    values: shape (n_examples,). member: shape (n_examples,).
    """
    found = minimize(_objective, np.zeros(2), args=(values, member), jac=True, method="L-BFGS-B", options=_LBFGS)
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


@compiled
def _fit_all(values: Float64, labels: Float64, train: Int64, held: Int64) -> Float64:
    n_models, n_splits = values.shape[0], train.shape[0]
    accuracy = np.empty((n_models, n_splits), np.float64)
    for model in range(n_models):
        x = values[model]
        if x.min() == x.max():
            accuracy[model] = 0.5
            continue
        slope, level = 0.0, 0.0
        for split in range(n_splits):
            rows = train[split]
            centre = 0.0
            for i in rows:
                centre += x[i]
            centre /= rows.size
            level += slope * centre  # `level` is the output at the centre, warm from the split before
            g0 = g1 = h00 = h01 = h11 = 0.0
            new_slope, new_level = slope, level
            d0 = d1 = descent = 0.0
            fraction, first = 1.0, True
            for _ in range(200):
                g0, g1 = new_slope, 0.0
                h00, h01, h11 = 1.0, 0.0, 1e-12
                for i in rows:
                    c = x[i] - centre
                    p = 1.0 / (1.0 + np.exp(-(new_slope * c + new_level)))
                    error, spread = p - labels[i], p * (1.0 - p)
                    g0 += error * c
                    g1 += error
                    h00 += spread * c * c
                    h01 += spread * c
                    h11 += spread
                if not first and g0 * d0 + g1 * d1 > 0.9 * descent:  # far past the minimum along the step
                    fraction *= 0.5
                    new_slope, new_level = slope + fraction * d0, level + fraction * d1
                    continue
                first, fraction = False, 1.0
                slope, level = new_slope, new_level
                determinant = h00 * h11 - h01 * h01
                d0 = (h01 * g1 - h11 * g0) / determinant
                d1 = (h01 * g0 - h00 * g1) / determinant
                descent = -(g0 * d0 + g1 * d1)
                if descent < 1e-10:
                    break
                new_slope, new_level = slope + d0, level + d1
            right = 0
            for i in held[split]:
                if (slope * (x[i] - centre) + level > 0.0) == (labels[i] == 1.0):
                    right += 1
            accuracy[model, split] = right / held.shape[1]
            level -= slope * centre
    return accuracy
