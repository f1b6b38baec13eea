"""The joint audit over runs."""

import numpy as np
import pytest

from lethe.metrics.distribution.joint_audit import audit_folds, fitted, held_out, joint_audit, joint_audit_all


def runs(seed, mean=0.0, n=30, examples=8):
    return np.random.default_rng(seed).normal(size=(n, examples)) + mean


def test_separated_runs_have_area_one_and_other_runs_one_half():
    assert joint_audit(runs(1), runs(2, 3.0)).value == 1.0
    areas = [joint_audit(runs(i), runs(i + 100)).value for i in range(20)]
    assert np.mean(areas) == pytest.approx(0.5, abs=0.06)


def test_correlation_of_examples_is_seen_though_each_example_is_alike():
    rng = np.random.default_rng(5)
    shared = rng.normal(size=(200, 1))
    retrained, unlearned = rng.normal(size=(2, 200, 20))
    unlearned = 0.2 * shared + unlearned + 0.25  # a shift of a quarter deviation in every example
    found = joint_audit(unlearned, retrained)
    assert found.value > 0.7


def test_copies_are_far_below_one_half_and_named():
    retrained = runs(1)
    found = joint_audit(retrained, retrained)
    assert found.value < 0.4
    assert "30 unlearned runs are copies" in found.notes[0]


def test_constant_examples_have_no_weight():
    u, r = runs(1), runs(2, 0.5)
    u[:, 0] = r[:, 0] = 0.1
    folds = audit_folds(u, r, n_folds=5, seed=0)
    expected = held_out(u[:, 1:], r[:, 1:], folds).margins
    assert held_out(u, r, folds).margins == pytest.approx(expected, abs=1e-9)


def test_all_runs_equal_is_chance():
    constant = np.ones((6, 3))
    assert joint_audit(constant, constant).value == 0.5


def test_folds_hold_every_side_evenly_with_unequal_numbers():
    folds = audit_folds(runs(1, n=10), runs(2, n=25), n_folds=5, seed=0)
    assert np.bincount(folds[:10]).tolist() == [2] * 5
    assert np.bincount(folds[10:]).tolist() == [5] * 5


def test_two_runs_make_two_folds():
    assert 0.0 <= joint_audit(runs(1, n=2), runs(2, n=9)).value <= 1.0


def test_more_examples_than_runs_give_the_same_fit_as_fewer():
    rows = runs(1, n=12, examples=4)
    labels = np.repeat([1, 0], 6)
    weights, intercept = fitted(rows, labels, penalty=0.01)
    wide, same = fitted(np.column_stack((rows, np.zeros((12, 40)))), labels, penalty=0.01)
    assert wide[:4] == pytest.approx(weights, abs=1e-9)
    assert same == pytest.approx(intercept, abs=1e-9)


def test_power_curve_grows_with_runs():
    found = joint_audit(runs(1, n=80), runs(2, 0.4, n=80))
    assert found.table["runs"] == [8, 16, 32, 64]
    assert found.table["auc"][-1] > found.table["auc"][0]


def test_other_sets_can_give_a_run_away():
    u, r = runs(1), runs(2)
    alone = joint_audit(u, r).value
    assert joint_audit_all(u, r, runs(3), runs(4), runs(5), runs(6, 3.0)).value > max(alone, 0.95)
