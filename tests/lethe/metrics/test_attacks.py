"""The membership attacks: against scikit-learn, and at their edges."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from lethe.metrics import InvalidMetricInput
from lethe.metrics.attacks.scalar_attack import attack_accuracy, split_accuracies, stratified_splits
from lethe.metrics.attacks.softmax_attack import fit_logistic, softmax_attack_percent

SPLITS = {"n_splits": 10, "test_share": 0.1, "seed": 123}


def gamma(seed: int, shape: float, size: int) -> np.ndarray:
    return np.random.default_rng(seed).gamma(shape, size=(3, size))


def test_newton_agrees_with_scikit_learn_but_at_the_threshold():
    values = np.concatenate([gamma(1, 1.0, 150), gamma(2, 1.3, 150)], axis=1)
    labels = np.repeat([0, 1], 150)
    train, held = stratified_splits(150, **SPLITS)
    exact, published = (split_accuracies(values, labels, train, held, solver=solver) for solver in ("newton", "lbfgs"))
    assert np.abs(exact - published).max() <= 1 / held.shape[1] + 1e-12
    assert np.mean(exact == published) > 0.9


def test_separable_losses_are_told_apart():
    accuracy = attack_accuracy(gamma(1, 1.0, 50), 100.0 + gamma(2, 1.0, 60), **SPLITS)
    assert accuracy.tolist() == [1.0, 1.0, 1.0]


def test_huge_losses_do_not_overflow():
    accuracy = attack_accuracy(1e3 * gamma(1, 1.0, 50), 1e3 * gamma(2, 1.2, 50), **SPLITS)
    assert np.isfinite(accuracy).all()


def test_equal_losses_give_one_half():
    assert attack_accuracy(np.ones((2, 25)), np.ones((2, 31)), **SPLITS).tolist() == [0.5, 0.5]


def test_attack_ignores_the_order_of_examples():
    members, others = gamma(1, 1.0, 40), gamma(2, 1.3, 70)
    turned = attack_accuracy(members[:, ::-1], np.roll(others, 7, axis=1), **SPLITS)
    assert turned.tolist() == attack_accuracy(members, others, **SPLITS).tolist()


def test_too_few_examples_are_refused():
    with pytest.raises(InvalidMetricInput, match=r"holds out 0.1 of 10 examples .* at least 6 members"):
        attack_accuracy(np.zeros((1, 5)), np.zeros((1, 50)), **SPLITS)


def test_weights_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    features = rng.dirichlet(np.ones(5), (2, 300))
    features[1, :150, 0] += 0.5
    labels = np.repeat([1.0, 0.0], 150)
    found = fit_logistic(features, labels)
    for weights, rows in zip(found, features, strict=True):
        reference = LogisticRegression(tol=1e-10, max_iter=10_000).fit(rows, labels)
        assert weights == pytest.approx(np.append(reference.coef_[0], reference.intercept_), abs=1e-5)


def softmax_attack(members: np.ndarray, others: np.ndarray) -> np.ndarray:
    return softmax_attack_percent(members, others, task=0, n_splits=2, test_share=0.2, seed=0)


def test_softmax_attack_tells_certain_from_uncertain():
    certain, uncertain = np.zeros((2, 40, 3)), np.full((2, 60, 3), 1.0 / 3.0)
    certain[:, :, 0] = 1.0
    assert softmax_attack(certain, uncertain).tolist() == [100.0, 100.0]


def test_softmax_attack_draws_the_same_for_equal_models_of_a_run():
    rows = np.random.default_rng(0).dirichlet(np.ones(3), (3, 40))
    others = np.random.default_rng(1).dirichlet(np.ones(3), (3, 60))
    first, second = softmax_attack(rows, others), softmax_attack(rows[:1].repeat(3, 0), others[:1].repeat(3, 0))
    assert first[0] == second[0]
    assert len(set(second)) > 1, "copies of one model must draw other splits"


def test_softmax_attack_in_batches_is_the_same(monkeypatch):
    rows = np.random.default_rng(0).dirichlet(np.ones(3), (3, 40))
    others = np.random.default_rng(1).dirichlet(np.ones(3), (3, 60))
    at_once = softmax_attack(rows, others)
    monkeypatch.setattr("lethe.metrics.attacks.softmax_attack.MAX_BATCH", 1)
    assert softmax_attack(rows, others).tolist() == at_once.tolist()


def test_softmax_attack_needs_two_examples_of_each_set():
    rows = np.full((1, 1, 2), 0.5)
    with pytest.raises(InvalidMetricInput, match="at least 2 examples of each set, not 1"):
        softmax_attack(rows, np.full((1, 9, 2), 0.5))
