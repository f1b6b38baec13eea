"""The attacks that several metrics share, on outputs and on saliency maps, computed once per side.

The MIAU paper classifies input-gradient maps with XGBoost 3.0 and names no settings. Here: scikit-learn's boosting on
histograms with XGBoost's defaults (100 trees of depth 6, learning rate 0.3, L2 penalty 1). XGBoost's least sum of
hessians in a leaf, 1, is 4 examples at a probability of one half; here 4 examples is the limit throughout. Draws are
those of the softmax attack: run i draws with seed i, the same for unlearned, retrained and original models.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from pydantic import Field

from lethe.metrics.attacks.scalar_attack import Solver, attack_accuracy, drawn_rows, held_out, softmax_attack_percent
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.derived_arrays import entropies
from lethe.metrics.core.registry import Feature, Parameters


class ShuffleSplits(Parameters):
    """Random stratified splits of a membership attack on one number per example.

    solver: "newton" finds the optimum; "lbfgs" is scikit-learn's, which published programs call, and slower.
    """

    n_splits: int = Field(10, ge=1)
    test_share: float = Field(0.1, gt=0.0, lt=1.0)
    seed: int = Field(123, ge=0)
    solver: Solver = "newton"


class SoftmaxSplits(Parameters):
    """Splits of a membership attack on softmax vectors; run i draws with seed i after `seed`."""

    n_splits: int = Field(1, ge=1)
    test_share: float = Field(0.2, gt=0.0, lt=1.0)
    seed: int = Field(0, ge=0)


def _entropy(members: Float64, others: Float64, **splits: Any) -> Float64:
    return attack_accuracy(entropies(members), entropies(others), **splits)


_SPLITS = ("n_splits", "test_share", "seed")
_SCALAR = (*_SPLITS, "solver")
LOSS_ATTACK = Feature("loss attack", attack_accuracy, ("forget_loss", "test_loss"), parameters=_SCALAR)
CONFIDENCE_ATTACK = Feature(
    "confidence attack", attack_accuracy, ("forget_probability", "test_probability"), parameters=_SCALAR
)
ENTROPY_ATTACK = Feature("entropy attack", _entropy, ("forget_probabilities", "test_probabilities"), parameters=_SCALAR)


def _train_test(forget: Float64, retain: Float64, test: Float64, **splits: Any) -> Float64:
    return softmax_attack_percent(np.concatenate([forget, retain], axis=1), test, task=3, **splits)


def _softmax(name: str, function: Callable[..., Float64], *sets: str) -> Feature:
    arrays = tuple(f"{part}_probabilities" for part in sets)
    return Feature(f"softmax attack {name}", function, arrays, parameters=_SPLITS, by_run=True)


FORGET_RETAIN_ATTACK = _softmax("forget-retain", partial(softmax_attack_percent, task=0), "retain", "forget")
FORGET_TEST_ATTACK = _softmax("forget-test", partial(softmax_attack_percent, task=1), "forget", "test")
TEST_RETAIN_ATTACK = _softmax("test-retain", partial(softmax_attack_percent, task=2), "retain", "test")
TRAIN_TEST_ATTACK = _softmax("train-test", _train_test, "forget", "retain", "test")


MIN_LEAF = 4
PENALTY = 1.0


class SaliencySplits(SoftmaxSplits):
    """trees, depth, learning_rate: of the boosting; the defaults are XGBoost's."""

    trees: int = Field(100, ge=1)
    depth: int = Field(6, ge=1)
    learning_rate: float = Field(0.3, gt=0.0)


def saliency_attack_percent(
    members: Float64,
    others: Float64,
    *,
    task: int,
    n_splits: int = 1,
    test_share: float = 0.2,
    seed: int = 0,
    trees: int = 100,
    depth: int = 6,
    learning_rate: float = 0.3,
) -> Float64:
    """Return the held-out accuracy of the attack on every model in percent, shape (n_models,).

    members, others: saliency maps, shapes (n_models, n_members, n_pixels) and (n_models, n_others, n_pixels); the
    larger set is cut to the size of the smaller. task: number of the pair of sets, part of the seed.
    A model whose maps are all equal has accuracy 50.
    Raises InvalidMetricInput for sets too small to hold out one example of each.
    Source: the MIAU paper, section 5, attack training protocol; Huang et al. 2024 (arXiv:2407.17663).
    """
    from threadpoolctl import threadpool_limits  # noqa: PLC0415  looks for libraries, needed by attacks alone

    a, b = members, others
    n_held = held_out(min(a.shape[1], b.shape[1]), test_share)
    accuracies = np.empty((len(a), n_splits))
    with threadpool_limits(limits=1):
        for run, each in enumerate(accuracies):
            rng = np.random.default_rng([seed, task, run])
            for split in range(n_splits):
                train, held = drawn_rows(a[run], b[run], n_held=n_held, rng=rng)
                each[split] = _accuracy(train, held, trees=trees, depth=depth, learning_rate=learning_rate)
    return np.asarray(100.0 * accuracies.mean(axis=1))


def _accuracy(train: Float64, held: Float64, *, trees: int, depth: int, learning_rate: float) -> float:
    from sklearn.ensemble import HistGradientBoostingClassifier  # noqa: PLC0415  slow to import, needed here alone

    boosting = HistGradientBoostingClassifier(
        max_iter=trees,
        max_depth=depth,
        learning_rate=learning_rate,
        l2_regularization=PENALTY,
        min_samples_leaf=MIN_LEAF,
        max_leaf_nodes=None,
        early_stopping=False,
        random_state=0,
    )
    labels = (np.repeat([1, 0], len(rows) // 2) for rows in (train, held))
    return float(boosting.fit(train, next(labels)).score(held, next(labels)))


def _saliency(name: str, task: int, *sets: str) -> Feature:
    arrays, settings = tuple(f"{part}_saliency" for part in sets), tuple(SaliencySplits.model_fields)
    function = partial(saliency_attack_percent, task=task)
    return Feature(f"saliency attack {name}", function, arrays, parameters=settings, by_run=True)


FORGET_RETAIN_SALIENCY = _saliency("forget-retain", 0, "retain", "forget")
FORGET_TEST_SALIENCY = _saliency("forget-test", 1, "forget", "test")
TEST_RETAIN_SALIENCY = _saliency("test-retain", 2, "retain", "test")
