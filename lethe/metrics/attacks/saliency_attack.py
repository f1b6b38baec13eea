"""Membership inference from saliency maps: gradient boosting, one stratified split per run.

The paper classifies input-gradient maps with XGBoost 3.0 and names no settings. Here: scikit-learn's boosting on
histograms with XGBoost's defaults (100 trees of depth 6, learning rate 0.3, L2 penalty 1). XGBoost's least sum of
hessians in a leaf, 1, is 4 examples at a probability of one half; here 4 examples is the limit throughout. Draws are
those of the softmax attack: run i draws with seed i, the same for unlearned, retrained and original models.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from lethe.metrics.attacks.membership_features import SoftmaxSplits
from lethe.metrics.attacks.softmax_attack import drawn_rows, held_out
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.registry import Feature

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
    return float(boosting.fit(train, _members(train)).score(held, _members(held)))


def _members(rows: Float64) -> npt.NDArray[np.int64]:
    return np.repeat(np.array([1, 0]), len(rows) // 2)


def _forget_retain(forget: Any, retain: Any, **settings: Any) -> Float64:
    return saliency_attack_percent(retain, forget, task=0, **settings)


def _forget_test(forget: Any, test: Any, **settings: Any) -> Float64:
    return saliency_attack_percent(forget, test, task=1, **settings)


def _test_retain(retain: Any, test: Any, **settings: Any) -> Float64:
    return saliency_attack_percent(retain, test, task=2, **settings)


def _feature(name: str, function: Callable[..., Float64], *sets: str) -> Feature:
    arrays, settings = tuple(f"{part}_saliency" for part in sets), tuple(SaliencySplits.model_fields)
    return Feature(f"saliency attack {name}", function, arrays, parameters=settings, by_run=True)


FORGET_RETAIN_SALIENCY = _feature("forget-retain", _forget_retain, "forget", "retain")
FORGET_TEST_SALIENCY = _feature("forget-test", _forget_test, "forget", "test")
TEST_RETAIN_SALIENCY = _feature("test-retain", _test_retain, "retain", "test")
