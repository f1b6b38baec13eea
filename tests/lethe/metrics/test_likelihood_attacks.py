"""Likelihood-ratio attacks, and scores of single runs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from lethe.metrics import InvalidMetricInput
from lethe.metrics.attacks.likelihood_attack import held_out_ratios
from lethe.metrics.membership.likelihood_ratios import (
    State,
    log_ratios,
    ruli,
    ulira,
    ulira_correctness,
    ulira_split,
)
from lethe.metrics.membership.run_scores import (
    gaussian_score,
    iam,
    noise_alignment,
    rmia,
)

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


@pytest.mark.parametrize(
    ("state", "message"),
    [(np.zeros(SHAPE), "no example was forgotten"), (np.full(SHAPE, 3), "not 3"), (np.zeros((2, 2, 2)), "shape")],
)
def test_states_without_a_value_are_refused(state, message):
    with pytest.raises(InvalidMetricInput, match=message):
        ulira(draw(5)[0], state)


def test_example_that_is_always_right_has_no_value():
    _, state = draw(8)
    correct = np.random.default_rng(8).random(SHAPE) < 0.5
    correct[:, :, 2] = True
    result = ulira_correctness(correct, state)
    assert np.isnan(result.per_example[2])
    assert result.table["examples"] < 5
    with pytest.raises(InvalidMetricInput, match="0 or 1"):
        ulira_correctness(np.full(SHAPE, 0.5), state)


SEEDS = st.integers(0, 2**32 - 1)


def confidences(seed: int, n_models: int = 8, n_examples: int = 6, shift: float = 0.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(2.0 + shift, 1.0, (n_models, n_examples))


@settings(max_examples=20, deadline=None)
@given(SEEDS, st.sampled_from(["normal", "kde"]))
def test_equal_sides_are_at_chance(seed, density):
    u = confidences(seed)
    result = ulira_split(u, u.copy(), density=density)
    assert (result.value, result.table["auc"]) == (0.5, 0.5)


def test_one_outlier_leaves_the_variance_of_the_others_exact():
    first = np.array([1e8, 1.0, 2.0, 3.0])
    second = np.array([1.0, 2.0, 4.0, 3.0])
    pairs = np.arange(4)
    found = held_out_ratios(first, second, (pairs, pairs), density="normal")
    expected = [norm.logpdf(1e8, rest.mean(), rest.std()) for rest in (first[1:], second[1:])]
    assert found[0][0] == pytest.approx(expected[0] - expected[1], rel=1e-12)


@pytest.mark.parametrize("n_models", [6, 11, 23])
def test_constant_side_is_told_apart(n_models):
    u, r = (confidences(seed, n_models=n_models, n_examples=40) for seed in (3, 4))
    u = np.tile(u[:1], (n_models, 1))  # means that a difference of sums misses by rounding
    assert ulira_split(u, r).value == ulira_split(r, u).value == ulira_split(u, u + 1.0).value == 1.0


def shares(seed, low=0.2, high=0.8, n=10, examples=5):
    return np.random.default_rng(seed).uniform(low, high, size=(n, examples))


def test_rmia_sees_members_and_takes_unequal_numbers():
    pops = shares(3, n=4, examples=20), shares(4, examples=20)
    assert rmia(shares(1, 0.9, 1.0, n=4), shares(2), *pops).value > 0.9
    constant = np.full((4, 5), 0.5), np.full((4, 9), 0.5)
    assert rmia(constant[0], constant[0], constant[1], constant[1]).value == 0.5
    with pytest.raises(InvalidMetricInput, match="at least 2"):
        rmia(shares(1), shares(2, n=1), shares(3), shares(4, n=1))


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


def test_gaussian_score_is_a_z_statistic():
    found = gaussian_score(np.array([[1.0, 1.0, 1.0, 1.0], [-3.0, -3.0, 0.0, 0.0]]))
    assert found.per_run == pytest.approx([2.0, -3.0])
    assert found.table["lower_share"] == 0.25
    with pytest.raises(InvalidMetricInput, match="deviation must be above 0"):
        noise_alignment(np.ones((1, 2)), np.ones((1, 2)), deviation=0.0)
