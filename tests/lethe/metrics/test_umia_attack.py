import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from lethe.metrics.attacks.scalar_attack import split_accuracies, stratified_splits
from lethe.metrics.membership.umia import forget_test_attack, held_out_accuracies, shuffled
from tests.lethe.metrics.literal_attacks import umia_scores

SEEDS = st.integers(0, 2**32 - 1)


def attack(forget: np.ndarray, test: np.ndarray) -> np.ndarray:
    return forget_test_attack(forget, test, n_splits=10, seed=0)


def losses(seed: int, n_models: int = 3, n_examples: int = 40) -> np.ndarray:
    return np.random.default_rng(seed).gamma(0.5, 0.5, (n_models, n_examples))


@settings(max_examples=15, deadline=None)
@given(SEEDS, st.integers(10, 120), st.floats(0.2, 5.0))
def test_scores_equal_those_of_scikit_learn(seed, n_examples, scale):
    first, second = losses(seed, 1, n_examples)[0], scale * losses(seed + 1, 1, n_examples)[0]
    assert held_out_accuracies(first[None], second[None]).tolist() == [umia_scores(first, second).tolist()]


def test_scores_equal_those_of_scikit_learn_on_large_sets():
    first, second = losses(1, 1, 4000)[0], 1.1 * losses(2, 1, 4000)[0]
    assert held_out_accuracies(first[None], second[None]).tolist() == [umia_scores(first, second).tolist()]


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_order_of_examples_does_not_matter(seed):
    forget, test = losses(seed), losses(seed + 1, n_examples=90)
    rng = np.random.default_rng(seed)
    mixed = attack(forget[:, rng.permutation(40)], test[:, rng.permutation(90)])
    assert mixed.tolist() == attack(forget, test).tolist()


def test_separable_losses_are_separated():
    assert attack(losses(5) + 50.0, losses(6)).tolist() == [1.0, 1.0, 1.0]


def test_constant_losses_are_at_chance():
    assert attack(np.ones((2, 30)), np.ones((2, 50))).tolist() == [0.5, 0.5]


def test_shuffling_follows_the_published_generator():
    forget, test = np.arange(20.0), np.arange(30.0)
    order = np.random.RandomState(9)
    expected_test, expected_forget = test.copy(), forget.copy()
    order.shuffle(expected_test)
    order.shuffle(expected_forget)
    first, second = shuffled(forget, test, seed=9)
    assert first.tolist() == expected_forget.tolist()
    assert second.tolist() == expected_test[:20].tolist()


def test_float32_losses_are_fitted_in_float32_as_scikit_learn_does():
    """With this seed one fit in float64 ends on the other side of a held-out example."""
    losses32 = np.abs(np.random.default_rng(16).normal(0, 3, 120)).astype(np.float32)
    losses32[:60] += np.float32(0.2)
    labels, (train, held) = np.repeat([0, 1], 60), stratified_splits(60, n_splits=10, test_share=0.1, seed=0)
    fits = [LogisticRegression().fit(losses32[rows, None], labels[rows]) for rows in train]
    expected = [fit.score(losses32[rows, None], labels[rows]) for fit, rows in zip(fits, held, strict=True)]
    found = split_accuracies(losses32[None], labels, train, held, solver="lbfgs")
    assert found.tolist() == [expected]
    assert split_accuracies(losses32[None].astype(np.float64), labels, train, held, solver="lbfgs").tolist() != [
        expected
    ]
