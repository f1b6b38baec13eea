"""Membership inference from the softmax vector: logistic regression, one stratified split per run.

The paper gives no hyper-parameters. Here: L2 penalty with C = 1 and a free intercept, the exact optimum by Newton's
method. Run i draws with seed i, and the draw is the same for the unlearned, the retrained and the original model of
that run, so that its noise cancels in differences. Examples are drawn by position: their order is part of the seed.
"""

import numpy as np

from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.compiled import compiled
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.processors import in_threads

CONVERGED = 1e-10
MAX_STEPS = 100
MAX_BATCH = 2**22  # numbers fitted at once: 32 MiB


def softmax_attack_percent(
    members: Float64,
    others: Float64,
    *,
    task: int,
    n_splits: int,
    test_share: float,
    seed: int,
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
