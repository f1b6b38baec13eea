import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.membership.umia import consistent_unforgettability, hits


def losses(seed: int, n_examples: int = 40, scale: float = 1.0) -> np.ndarray:
    return scale * np.random.default_rng(seed).gamma(0.5, 0.5, (4, n_examples))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_order_of_examples_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.permutation(40), rng.permutation(60)
    forget, test = losses(seed), losses(seed + 1, 60)
    assert hits(forget[:, a], test[:, b]).tolist() == hits(forget, test)[:, a].tolist()


def test_forget_losses_far_below_the_test_losses_are_all_hit():
    found = hits(losses(1), losses(2, 60) + 30.0)
    assert found.all()
    result = consistent_unforgettability(found, np.zeros((4, 40)))
    assert (result.value, result.table["retrained"], result.table["expected_all"]) == (1.0, 0.0, 0.0)


def test_shares_and_their_expectation():
    u = np.array([[1, 1, 0, 0], [1, 0, 0, 1], [1, 1, 0, 0], [1, 0, 0, 0]], dtype=bool)
    r = np.array([[1, 0, 1, 0]] * 4, dtype=bool)
    result = consistent_unforgettability(u, r)
    assert (result.value, result.table["half"], result.table["retrained"]) == (0.25, 0.5, 0.5)
    assert result.per_example.tolist() == [4, 2, 0, 1]
    assert result.table["expected_all"] == 0.5**4
    assert result.table["expected_half"] == pytest.approx(1 - binom.cdf(1, 4, 0.5))


@pytest.mark.parametrize(("n_test", "n_folds"), [(30, 10), (60, 1), (60, 41)])
def test_too_few_test_examples_or_folds_are_refused(n_test, n_folds):
    with pytest.raises(InvalidMetricInput, match="as many test as forget examples"):
        hits(losses(5), losses(6, n_test), n_folds=n_folds)
