import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.metrics import InvalidMetricInput
from lethe.metrics.weights.probes import mean_weight_distance, weight_distance


def network(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"weight": rng.normal(0, 1, (3, 4)), "bias": rng.normal(0, 1, 3)}


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_distances_equal_those_of_one_long_vector(seed):
    first, second = network(seed), network(seed + 1)
    a, b = (np.concatenate([part.ravel() for part in parts.values()]) for parts in (first, second))
    result = weight_distance(first, dict(reversed(second.items())))
    norm = np.linalg.norm
    assert result.value == pytest.approx(norm(a - b), rel=1e-12)
    assert result.table["over_norm"] == pytest.approx(norm(a - b) / norm(a), rel=1e-12)
    assert result.table["of_unit_weights"] == pytest.approx(norm(a / norm(a) - b / norm(b)), rel=1e-12)


def test_network_is_at_distance_zero_from_itself():
    assert weight_distance(network(1), network(1)).value == 0.0


def test_network_of_zeros_has_no_unit_weights():
    result = weight_distance({"w": np.zeros(3)}, {"w": np.ones(3)})
    assert (result.table["over_norm"], result.table["of_unit_weights"]) == (None, None)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"weight": np.ones((3, 4))}, "differ in the parameters"),
        ({"weight": np.ones((3, 5)), "bias": np.ones(3)}, "differ in the size of weight"),
        ({"weight": np.full((3, 4), np.nan), "bias": np.ones(3)}, "weight of the second network"),
        ({}, "second network has no parameters"),
    ],
)
def test_networks_that_do_not_match_are_refused(second, message):
    with pytest.raises(InvalidMetricInput, match=message):
        weight_distance(network(1), second)


def flat(network: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([part.ravel() for part in network.values()])


def test_mean_over_models_is_of_each_pairs_distances():
    pairs = [(network(seed), network(seed + 10)) for seed in range(5)]
    single = [weight_distance(*pair) for pair in pairs]
    norms = [np.array([np.linalg.norm(flat(side)) for side in sides]) for sides in zip(*pairs, strict=True)]
    found = mean_weight_distance(np.array([result.value for result in single]), *norms)
    assert found.value == pytest.approx(np.mean([result.value for result in single]))
    for name in ("over_norm", "norm", "of_unit_weights"):
        assert found.table[name] == pytest.approx(np.mean([result.table[name] for result in single])), name


def test_models_beyond_the_shortest_side_do_not_count():
    assert mean_weight_distance(np.array([1.0, 3.0]), np.array([2.0, 2.0]), np.array([2.0, 2.0, 2.0])).value == 2.0
    assert mean_weight_distance(np.array([1.0, 3.0]), np.array([2.0, 2.0]), np.array([2.0])).value == 1.0


def test_mean_of_zero_weights_has_no_ratio():
    found = mean_weight_distance(np.array([1.0, 1.0]), np.array([0.0, 1.0]), np.array([1.0, 1.0]))
    assert (found.value, found.table["over_norm"], found.table["of_unit_weights"]) == (1.0, None, None)
