"""RMIA, IAM, RULI and the Gaussian score: hand-worked cases and odd inputs."""

import numpy as np
import pytest

from lethe.metrics import InvalidMetricInput
from lethe.metrics.membership.run_scores import (
    gaussian_score,
    iam,
    leave_one_out,
    noise_alignment,
    rmia,
    scores,
    signal,
)
from lethe.metrics.membership.ulira import log_ratios, ruli


def shares(seed, low=0.2, high=0.8, n=10, examples=5):
    return np.random.default_rng(seed).uniform(low, high, size=(n, examples))


def test_rmia_by_hand():
    out, population = np.array([[0.5, 0.5]]), np.array([0.2, 0.5, 0.8])
    # a = 1: pbar is the OUT mean; ratios of the population 0.4, 1, 1.6; of the target 1.2 and 1
    found = scores(np.array([0.6, 0.5]), out, population, np.full((1, 3), 0.5), offline_a=1.0, gamma=1.0)
    assert found.tolist() == [2 / 3, 1 / 3]  # a tie does not count


def test_rmia_leaves_the_model_out_of_its_references():
    r, population = shares(1, n=3), shares(2, n=3, examples=9)
    alone = scores(r[0], r[1:], population[0], population[1:], offline_a=0.3, gamma=1.0)
    assert leave_one_out(r, population, offline_a=0.3, gamma=1.0)[0] == pytest.approx(alone)


def test_rmia_sees_members_and_takes_unequal_numbers():
    pops = shares(3, n=4, examples=20), shares(4, examples=20)
    assert rmia(shares(1, 0.9, 1.0, n=4), shares(2), *pops).value > 0.9
    constant = np.full((4, 5), 0.5), np.full((4, 9), 0.5)
    assert rmia(constant[0], constant[0], constant[1], constant[1]).value == 0.5
    with pytest.raises(InvalidMetricInput, match="at least 2"):
        rmia(shares(1), shares(2, n=1), shares(3), shares(4, n=1))


def test_iam_signal_ends_at_0_and_1():
    assert signal(np.array([0.0, 1.0])) == pytest.approx([0.0, 1.0])


def test_iam_orders_retrained_between_and_original_last():
    retrained, original = shares(1, 0.1, 0.4, n=30), np.full((1, 5), 0.99)
    middle = iam(shares(2, 0.1, 0.4), retrained, original).value
    assert iam(np.repeat(original, 10, axis=0), retrained, original).value < 0.5 < middle


def test_iam_of_constants_is_undefined_and_says_so():
    constant = np.full((3, 4), 0.5)
    found = iam(constant, constant, constant)
    assert np.isnan(found.value)
    assert found.notes


def test_iam_needs_an_original_for_every_run():
    with pytest.raises(InvalidMetricInput, match="10 runs and 3 different originals"):
        iam(shares(1), shares(2), shares(3, n=3))


def test_ruli_far_from_all_models_is_defined():
    ours, theirs = log_ratios(np.array([0.0, 60.0, 1.0]), np.array([-1.0, -2.0, 0.5]))
    assert np.isfinite([*ours, *theirs]).all()


def test_ruli_of_equal_sides_is_chance_and_of_separated_ones_certain():
    rng = np.random.default_rng(0)
    r = rng.normal(size=(60, 3))
    assert ruli(np.ones((4, 2)), np.ones((4, 2))).value == 0.5
    found = ruli(r[:50] + 9.0, r)
    assert found.value == 1.0
    assert found.table["true_positive_rate_at_0.01"] == 1.0
    assert ruli(r[:20], r[20:50]).table["true_positive_rate_at_0.01"] is None


def test_alignment_by_hand_and_without_a_gradient():
    noise, gradients = np.array([[3.0, 4.0], [1.0, 1.0]]), np.array([[0.0, -2.0], [0.0, 0.0]])
    found = noise_alignment(noise, gradients, deviation=2.0)
    assert found[0] == pytest.approx(-2.0)
    assert np.isnan(found[1])


def test_gaussian_score_is_a_z_statistic():
    found = gaussian_score(np.array([[1.0, 1.0, 1.0, 1.0], [-3.0, -3.0, 0.0, 0.0]]))
    assert found.per_run == pytest.approx([2.0, -3.0])
    assert found.table["lower_share"] == 0.25
    with pytest.raises(InvalidMetricInput, match="deviation must be above 0"):
        noise_alignment(np.ones((1, 2)), np.ones((1, 2)), deviation=0.0)
