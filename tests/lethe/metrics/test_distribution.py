"""Whole runs: the joint audit, two-sample and relative tests, and what harmless retraining has too."""

import numpy as np
import pytest

from lethe.metrics import InvalidMetricInput
from lethe.metrics.core.result import MetricResult
from lethe.metrics.distribution.joint_audit import (
    audit_folds,
    held_out,
    hockey_stick,
    joint_audit,
    joint_audit_all,
)
from lethe.metrics.distribution.recipe_spread import DISTANCES, recipe_spread
from lethe.metrics.distribution.relative_test import (
    nearer_to_retrained,
    relative_position,
    relative_test,
    relative_test_permutation,
)
from lethe.metrics.distribution.two_sample_test import (
    mmd_aggregated,
    mmd_fuse,
    permuted_labels,
)


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


def test_folds_hold_every_side_evenly_with_unequal_numbers():
    folds = audit_folds(runs(1, n=10), runs(2, n=25), n_folds=5, seed=0)
    assert [np.bincount(side).tolist() for side in (folds[:10], folds[10:])] == [[2] * 5, [5] * 5]


def test_power_curve_grows_with_runs():
    found = joint_audit(runs(1, n=80), runs(2, 0.4, n=80))
    assert found.table["runs"] == [8, 16, 32, 64]
    assert found.table["auc"][-1] > found.table["auc"][0]


def test_other_sets_can_give_a_run_away():
    u, r = runs(1), runs(2)
    alone = joint_audit(u, r).value
    assert joint_audit_all(u, r, runs(3), runs(4), runs(5), runs(6, 3.0)).value > max(alone, 0.95)


TESTS = [mmd_aggregated, mmd_fuse]


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


def test_labels_follow_the_runs_not_their_order():
    pool, order = runs(1, n=9), np.random.default_rng(3).permutation(9)
    first = permuted_labels(pool, 4, n_permutations=20, seed=0)
    second = permuted_labels(pool[order], 4, n_permutations=20, seed=0)
    assert np.array_equal(first[1:][:, order], second[1:])


def test_separated_runs_are_one_apart_and_a_larger_epsilon_allows_more():
    assert hockey_stick(runs(1, examples=4), runs(2, 9.0, examples=4)).value == pytest.approx(1.0)
    u, r = runs(1, n=64, examples=4), runs(2, 0.7, n=48, examples=4)
    near = [hockey_stick(u, r, epsilon=e).value for e in (0.0, 1.0)]
    assert near[1] < near[0] < 1.0


def test_position_is_0_at_the_original_and_1_at_the_mean_retrained_model():
    retrained, original = runs(1), np.full((1, 8), 3.0)
    middle = np.stack([original[0], retrained.mean(axis=0), (original[0] + retrained.mean(axis=0)) / 2])
    assert relative_position(middle, retrained, original).per_run == pytest.approx([0.0, 1.0, 0.5])


def test_position_leaves_out_examples_without_spread_and_says_so():
    retrained, original = runs(1), np.full((1, 8), 3.0)
    retrained[:, 0] = 0.1
    found = relative_position(runs(2), retrained, original)
    rest = relative_position(runs(2)[:, 1:], retrained[:, 1:], original[:, 1:])
    assert found.value == pytest.approx(rest.value)
    assert "1 of 8 examples" in found.notes[0]


def test_share_nearer_takes_unequal_numbers_of_models():
    assert nearer_to_retrained(runs(1, n=7), runs(2), np.full((1, 8), 9.0)).value == 1.0
    assert nearer_to_retrained(runs(1, 9.0, n=7), runs(2), np.full((1, 8), 9.0)).value == 0.0


def test_too_few_models_are_refused():
    with pytest.raises(InvalidMetricInput, match="at least 2 retrained"):
        relative_position(runs(1), runs(2, n=1), runs(3))
    with pytest.raises(InvalidMetricInput, match="at least 3 models of every side, not 1"):
        spread(runs(4, n=1))


@pytest.mark.parametrize("test", [relative_test, relative_test_permutation])
@pytest.mark.parametrize("original", [runs(3, 2.0), np.full((1, 8), 2.0)], ids=["many originals", "one original"])
def test_relative_test_tells_which_side_is_nearer(test, original):
    assert test(runs(1), runs(2), original).value > 0.95
    assert test(runs(1, 2.0), runs(2), original).value < 0.05


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
    assert "not permuted" in relative_test_permutation(runs(1), runs(2), np.zeros((1, 8))).notes[-1]


SETTINGS = [[15.0, 0.0, 64.0, 0.0], [20.0, 5e-4, 64.0, 1.0]]


def spread(unlearned: np.ndarray, **changed: np.ndarray) -> MetricResult:
    models = changed.get("recipe_confidences", np.stack([runs(10, 0.5, n=16), runs(11, 1.0, n=16)]))
    given = {
        "retrained": runs(2, n=16),
        "oracle": runs(3, n=16),
        "recipe_confidences": models,
        "recipe_test_accuracy": np.full(models.shape[:2], 0.5),
        "recipe_settings": SETTINGS,
    } | changed
    tests = {f"{side}_test": np.full(len(given[side]), 0.5) for side in ("retrained", "oracle")}
    return recipe_spread(unlearned=unlearned, unlearned_test=np.full(len(unlearned), 0.5), **tests, **given)


def test_a_harmless_recipe_lies_within() -> None:
    assert spread(runs(11, 1.0, n=16)).value == pytest.approx(1.0, abs=1e-9)


def test_share_of_a_shift_is_by_hand() -> None:
    """One example, spread 1, no noise between the sides: the shift is the difference of the means."""
    base = np.array([[-1.0], [1.0], [-1.0], [1.0]])
    same = {"retrained": base, "oracle": base, "recipe_confidences": np.stack([base + 1.0])}
    found = spread(base + 4.0, **same, recipe_settings=SETTINGS[:1])
    assert found.table["shift_entry"] == 4.0
    assert found.table["shift_standard"] == 0.0
    assert found.table["shift"] == [1.0]
    assert found.table["shift_share"] == 0.25
    assert found.interval is None
    assert found.value <= 0.25


def test_every_distance_is_in_the_table() -> None:
    table = spread(runs(4, 2.0, n=16)).table
    assert {f"{name}_share" for name in DISTANCES} <= set(table)
    assert table["variation"] == [
        "epochs 15, weight decay 0, batch size 64, augmentation none",
        "epochs 20, weight decay 0.0005, batch size 64, augmentation flip",
    ]


def test_unequal_numbers_of_models_are_cut_into_blocks() -> None:
    found = spread(runs(4, 2.0, n=70), retrained=runs(2, n=64), oracle=runs(3, n=48))
    assert (found.table["models"], found.table["blocks"]) == (16, 3)
    assert found.interval is not None
    assert found.interval[0] <= found.value <= found.interval[1]


def test_constant_retrained_models_leave_the_shift_out() -> None:
    same = np.zeros((16, 8))
    found = spread(same, retrained=same, oracle=same, recipe_confidences=np.zeros((2, 16, 8)))
    assert "shift is not defined for these arrays: left out" in found.notes
    assert found.value == 1.0
