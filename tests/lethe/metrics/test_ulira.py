"""Per-example likelihood ratios, of one half and of splits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from lethe.metrics import InvalidMetricInput
from lethe.metrics.attacks.likelihood_attack import balanced_accuracy, held_out_ratios
from lethe.metrics.membership.ulira import State, membership_probabilities, ulira, ulira_correctness, ulira_split
from tests.lethe.metrics.literal_attacks import correctness_memberships, ulira_ratios

SHAPE = (6, 2, 5)


def draw(seed: int, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    state = np.stack([rng.permutation(np.repeat([0, 1, 2], 4)) for _ in range(5)], axis=1).reshape(SHAPE)
    return rng.normal(0, 1, SHAPE) + shift * (state == State.FORGOTTEN), state


def literal_accuracy(h: np.ndarray, state: np.ndarray, example: int) -> float:
    shares = []
    for kind, sign in ((State.FORGOTTEN, 1), (State.NEVER_SEEN, -1)):
        right = []
        for split, forget_set in np.argwhere(state[:, :, example] == kind):
            others = np.arange(SHAPE[0]) != split
            worlds = [h[others, :, example][state[others, :, example] == k] for k in (1, 2)]
            logs = [norm.logpdf(h[split, forget_set, example], x.mean(), x.std() + 1e-30) for x in worlds]
            right.append(sign * (logs[0] - logs[1]) > 0)
        shares.append(np.mean(right))
    return float(np.mean(shares))


def test_accuracies_equal_those_of_a_loop_over_splits():
    h, state = draw(1, shift=1.0)
    result = ulira(h, state)
    assert result.table["examples"] == 5
    assert result.per_example.tolist() == pytest.approx([literal_accuracy(h, state, e) for e in range(5)])


def test_forgotten_models_far_apart_are_separated():
    assert ulira(*draw(2, shift=100.0)).value == 1.0


def test_order_of_splits_and_examples_does_not_matter():
    h, state = draw(3, shift=1.0)
    splits, examples = np.array([3, 1, 0, 5, 2, 4]), np.array([4, 0, 2, 1, 3])
    mixed = ulira(h[splits][:, :, examples], state[splits][:, :, examples])
    np.testing.assert_allclose(mixed.per_example, ulira(h, state).per_example[examples], atol=1e-12)


def test_example_without_both_worlds_is_left_out():
    h, state = draw(4)
    state[:, :, 0] = State.TRAINED
    result = ulira(h, state)
    assert np.isnan(result.per_example[0])
    assert result.table["examples"] == 4


def test_no_usable_example_is_refused():
    h, state = draw(5)
    with pytest.raises(InvalidMetricInput, match="no example was forgotten"):
        ulira(h, np.zeros_like(state))


@pytest.mark.parametrize(("state", "message"), [(np.full(SHAPE, 3), "not 3"), (np.zeros((2, 2, 2)), "shape")])
def test_bad_states_are_refused(state, message):
    with pytest.raises(InvalidMetricInput, match=message):
        ulira(draw(6)[0], state)


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:divide by zero")
def test_correctness_equals_the_published_loop():
    rng = np.random.default_rng(7)
    correct, state = rng.random((30, 64)) < 0.9, rng.integers(0, 3, (30, 64))
    for found, expected in zip(
        membership_probabilities(correct, state), correctness_memberships(correct, state), strict=True
    ):
        assert np.array_equal(found, np.array(expected), equal_nan=True)


def test_example_that_is_always_right_has_no_value():
    _, state = draw(8)
    correct = np.random.default_rng(8).random(SHAPE) < 0.5
    correct[:, :, 2] = True
    result = ulira_correctness(correct, state)
    assert np.isnan(result.per_example[2])
    assert result.table["examples"] < 5


def test_correctness_refuses_other_values_than_0_and_1():
    with pytest.raises(InvalidMetricInput, match="0 or 1"):
        ulira_correctness(np.full(SHAPE, 0.5), draw(9)[1])


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
