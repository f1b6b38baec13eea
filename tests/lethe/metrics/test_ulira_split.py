import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.metrics.attacks.likelihood_attack import balanced_accuracy, held_out_ratios
from lethe.metrics.membership.ulira import ulira_split
from tests.lethe.metrics.literal_attacks import ulira_ratios

SEEDS = st.integers(0, 2**32 - 1)


def confidences(seed: int, n_models: int = 8, n_examples: int = 6, shift: float = 0.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(2.0 + shift, 1.0, (n_models, n_examples))


@settings(max_examples=10, deadline=None)
@given(SEEDS, st.sampled_from(["normal", "kde"]))
def test_ratios_equal_the_literal_ones(seed, density):
    u, r = confidences(seed), confidences(seed + 1, shift=0.5)
    pairs = np.arange(8)
    for example in range(6):
        expected = ulira_ratios(u, r, example, density=density)
        found = held_out_ratios(u[:, example].copy(), r[:, example].copy(), (pairs, pairs), density=density)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(SEEDS, st.sampled_from(["normal", "kde"]))
def test_equal_sides_are_at_chance(seed, density):
    u = confidences(seed)
    result = ulira_split(u, u.copy(), density=density)
    assert (result.value, result.table["auc"]) == (0.5, 0.5)


def test_sides_far_apart_are_separated():
    assert ulira_split(confidences(1, shift=50.0), confidences(2)).value == 1.0


def test_one_outlier_leaves_the_variance_of_the_others_exact():
    first = np.array([1e8, 1.0, 2.0, 3.0])
    second = np.array([1.0, 2.0, 4.0, 3.0])
    pairs = np.arange(4)
    found = held_out_ratios(first, second, (pairs, pairs), density="normal")
    expected = ulira_ratios(first[:, None], second[:, None], 0)
    np.testing.assert_allclose(found[0][0], expected[0][0], rtol=1e-12)


def test_constant_sides_with_equal_values_are_at_chance():
    assert ulira_split(np.full((5, 2), 3.0), np.full((5, 2), 3.0)).value == 0.5


@pytest.mark.parametrize("n_models", [6, 11, 23])
def test_constant_side_is_told_apart(n_models):
    u, r = (confidences(seed, n_models=n_models, n_examples=40) for seed in (3, 4))
    u = np.tile(u[:1], (n_models, 1))  # means that a difference of sums misses by rounding
    assert ulira_split(u, r).value == ulira_split(r, u).value == ulira_split(u, u + 1.0).value == 1.0


def test_ratio_of_exactly_one_counts_half():
    assert balanced_accuracy(np.array([0.0, 1.0]), np.array([0.0, 1.0])) == 0.5
