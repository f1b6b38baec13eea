"""The attacks that several metrics share, computed once per side."""

from typing import Any

import numpy as np
from pydantic import Field

from lethe.metrics.attacks.scalar_attack import Solver, attack_accuracy
from lethe.metrics.attacks.softmax_attack import softmax_attack_percent
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.processors import in_threads
from lethe.metrics.core.registry import Feature, Parameters
from lethe.metrics.core.softmax import row_entropies


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


def entropies(probabilities: Float64) -> Float64:
    """Return the entropy of every row in nats, shape (n_models, n_examples); 0 log 0 is 0.

    probabilities: shape (n_models, n_examples, n_classes).
    """
    return np.stack(in_threads(lambda model: row_entropies(np.ascontiguousarray(model)), probabilities))


def _entropy(members: Float64, others: Float64, **splits: Any) -> Float64:
    return attack_accuracy(entropies(members), entropies(others), **splits)


_SPLITS = ("n_splits", "test_share", "seed")
_SCALAR = (*_SPLITS, "solver")
LOSS_ATTACK = Feature("loss attack", attack_accuracy, ("forget_loss", "test_loss"), parameters=_SCALAR)
CONFIDENCE_ATTACK = Feature(
    "confidence attack", attack_accuracy, ("forget_probability", "test_probability"), parameters=_SCALAR
)
ENTROPY_ATTACK = Feature("entropy attack", _entropy, ("forget_probabilities", "test_probabilities"), parameters=_SCALAR)


def _forget_retain(forget: Any, retain: Any, **splits: Any) -> Float64:
    return softmax_attack_percent(retain, forget, task=0, **splits)


def _forget_test(forget: Any, test: Any, **splits: Any) -> Float64:
    return softmax_attack_percent(forget, test, task=1, **splits)


def _test_retain(retain: Any, test: Any, **splits: Any) -> Float64:
    return softmax_attack_percent(retain, test, task=2, **splits)


def _train_test(forget: Any, retain: Any, test: Any, **splits: Any) -> Float64:
    return softmax_attack_percent(np.concatenate([forget, retain], axis=1), test, task=3, **splits)


def _softmax(name: str, function: Any, *sets: str) -> Feature:
    arrays = tuple(f"{part}_probabilities" for part in sets)
    return Feature(f"softmax attack {name}", function, arrays, parameters=_SPLITS, by_run=True)


FORGET_RETAIN_ATTACK = _softmax("forget-retain", _forget_retain, "forget", "retain")
FORGET_TEST_ATTACK = _softmax("forget-test", _forget_test, "forget", "test")
TEST_RETAIN_ATTACK = _softmax("test-retain", _test_retain, "retain", "test")
TRAIN_TEST_ATTACK = _softmax("train-test", _train_test, "forget", "retain", "test")
