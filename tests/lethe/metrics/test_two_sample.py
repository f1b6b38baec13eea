"""Two-sample tests over many bandwidths, and the hockey-stick divergence."""

import numpy as np
import pytest

from lethe.metrics.distribution.joint_audit import Ratio, hockey_stick
from lethe.metrics.distribution.two_sample_test import (
    minimum_p,
    mmd_aggregated,
    mmd_fuse,
    p_values,
    permuted_labels,
    permuted_mmd2,
)

TESTS = [mmd_aggregated, mmd_fuse]


def runs(seed, mean=0.0, n=24):
    return np.random.default_rng(seed).normal(size=(n, 4)) + mean


@pytest.mark.parametrize("test", TESTS)
def test_shifted_runs_are_told_apart_with_unequal_numbers(test):
    assert test(runs(1), runs(2, 1.0, n=17), n_permutations=199).value <= 2 / 200


@pytest.mark.parametrize("test", TESTS)
def test_level_holds_under_one_distribution(test):
    rejected = sum(test(runs(i, n=12), runs(i + 500, n=12), n_permutations=99).value <= 0.05 for i in range(60))
    assert rejected <= 9


@pytest.mark.parametrize("test", TESTS)
def test_equal_constants_are_not_told_apart_and_different_ones_are(test):
    constant = np.ones((8, 3))
    assert test(constant, constant, n_permutations=99).value == 1.0
    assert test(constant, constant + 1.0, n_permutations=99).value < 0.05


def test_permuted_discrepancy_of_the_given_labels_is_the_plain_one():
    kernel = np.array([[1.0, 0.5, 0.2, 0.1], [0.5, 1.0, 0.3, 0.2], [0.2, 0.3, 1.0, 0.6], [0.1, 0.2, 0.6, 1.0]])
    labels = np.array([[True, True, False, False]])
    assert permuted_mmd2(kernel, labels) == pytest.approx([0.5 + 0.6 - 2 * (0.2 + 0.1 + 0.3 + 0.2) / 4])


def test_labels_follow_the_runs_not_their_order():
    pool, order = runs(1, n=9), np.random.default_rng(3).permutation(9)
    first = permuted_labels(pool, 4, n_permutations=20, seed=0)
    second = permuted_labels(pool[order], 4, n_permutations=20, seed=0)
    assert np.array_equal(first[1:][:, order], second[1:])


def test_ties_count_against_rejection():
    assert p_values(np.array([[1.0, 1.0, 0.0, 2.0]]))[0] == pytest.approx([0.75, 0.75, 1.0, 0.25])
    assert minimum_p(np.ones((3, 5))) == 1.0


def test_divergence_of_known_ratios():
    ratio = Ratio(at_p=np.array([0.0, 0.5, 2.0, 3.0]), at_q=np.array([0.5, 2.0, 2.0, 3.0]))
    assert ratio.divergence(1.0) == pytest.approx(0.75 - 0.5)
    assert ratio.divergence(2.5) == pytest.approx(0.25 - 2.5 * 0.25)


def test_separated_runs_are_one_apart_and_a_larger_epsilon_allows_more():
    assert hockey_stick(runs(1), runs(2, 9.0)).value == pytest.approx(1.0)
    near = [hockey_stick(runs(1, n=64), runs(2, 0.7, n=48), epsilon=e).value for e in (0.0, 1.0)]
    assert near[1] < near[0] < 1.0
