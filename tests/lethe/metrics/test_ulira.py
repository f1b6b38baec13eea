import numpy as np
import pytest
from scipy.stats import norm

from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.membership.ulira import State, membership_probabilities, ulira, ulira_correctness
from tests.lethe.metrics.literal_attacks import correctness_memberships

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
