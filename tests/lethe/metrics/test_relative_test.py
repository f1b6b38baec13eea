"""Position between original and retrained, and the three-sample test."""

import numpy as np
import pytest

from lethe.metrics import InvalidMetricInput
from lethe.metrics.distribution.relative_test import (
    nearer_to_retrained,
    relative_position,
    relative_test,
    relative_test_permutation,
)


def runs(seed, mean=0.0, n=40, examples=6):
    return np.random.default_rng(seed).normal(size=(n, examples)) + mean


def test_position_is_0_at_the_original_and_1_at_the_mean_retrained_model():
    retrained, original = runs(1), np.full((1, 6), 3.0)
    middle = np.stack([original[0], retrained.mean(axis=0), (original[0] + retrained.mean(axis=0)) / 2])
    assert relative_position(middle, retrained, original).per_run == pytest.approx([0.0, 1.0, 0.5])


def test_position_leaves_out_examples_without_spread_and_says_so():
    retrained, original = runs(1), np.full((1, 6), 3.0)
    retrained[:, 0] = 0.1
    found = relative_position(runs(2), retrained, original)
    rest = relative_position(runs(2)[:, 1:], retrained[:, 1:], original[:, 1:])
    assert found.value == pytest.approx(rest.value)
    assert "1 of 6 examples" in found.notes[0]


def test_position_of_constant_retrained_models_is_undefined():
    constant = np.ones((4, 3))
    assert np.isnan(relative_position(constant, constant, constant).value)
    assert np.isnan(nearer_to_retrained(constant, constant, constant).value)


def test_position_pairs_runs_with_their_own_originals():
    originals = runs(3, mean=5.0)
    assert relative_position(originals, runs(1), originals).per_run == pytest.approx(np.zeros(40))


def test_share_nearer_takes_unequal_numbers_of_models():
    assert nearer_to_retrained(runs(1, n=7), runs(2), np.full((1, 6), 9.0)).value == 1.0
    assert nearer_to_retrained(runs(1, 9.0, n=7), runs(2), np.full((1, 6), 9.0)).value == 0.0


def test_position_needs_two_retrained_models():
    with pytest.raises(InvalidMetricInput, match="at least 2 retrained"):
        relative_position(runs(1), runs(2, n=1), runs(3))


@pytest.mark.parametrize("test", [relative_test, relative_test_permutation])
@pytest.mark.parametrize("original", [runs(3, 2.0), np.full((1, 6), 2.0)], ids=["many originals", "one original"])
def test_relative_test_tells_which_side_is_nearer(test, original):
    assert test(runs(1), runs(2), original).value > 0.95
    assert test(runs(1, 2.0), runs(2), original).value < 0.05


def test_equal_references_give_one_half():
    reference = runs(2)
    assert relative_test(runs(1), reference, reference).value == pytest.approx(0.5)


@pytest.mark.parametrize("n", [2, 3])
def test_constant_or_too_few_runs_have_no_value(n):
    constant = np.ones((n, 4))
    found = relative_test(constant, constant, constant)
    assert np.isnan(found.value)
    assert "no variance" in found.notes[0]


@pytest.mark.parametrize("test", [relative_test, relative_test_permutation])
def test_level_holds_where_both_references_are_equally_far(test):
    rejected = 0
    for repetition in range(60):
        rng = np.random.default_rng([7, repetition])
        u, r, o = (rng.normal(size=(30, 3)) + mean for mean in (0.0, 0.5, -0.5))
        given = {} if test is relative_test else {"n_permutations": 99}
        rejected += test(u, r, o, **given).value <= 0.05
    assert rejected <= 9  # 3 expected; more than 9 of 60 has probability 0.001


def test_permutation_says_when_it_does_not_permute():
    assert "not permuted" in relative_test_permutation(runs(1), runs(2), np.zeros((1, 6))).notes[-1]
