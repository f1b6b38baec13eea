import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.metrics.outputs.predictions import activation_l1, disagreement

SEEDS = st.integers(0, 2**32 - 1)
METRICS = (activation_l1, disagreement)


def draw(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(4), (3, 7))


@pytest.mark.parametrize("metric", METRICS)
@settings(max_examples=20, deadline=None)
@given(seed=SEEDS)
def test_equal_models_are_at_distance_zero(metric, seed):
    assert metric(draw(seed), draw(seed)).value == 0.0


@pytest.mark.parametrize("metric", METRICS)
@settings(max_examples=20, deadline=None)
@given(seed=SEEDS)
def test_order_of_pairs_and_examples_does_not_matter(metric, seed):
    rng = np.random.default_rng(seed)
    u, r, models, examples = draw(seed), draw(seed + 1), rng.permutation(3), rng.permutation(7)
    plain, mixed = metric(u, r), metric(u[models][:, examples], r[models][:, examples])
    np.testing.assert_allclose(mixed.per_example, plain.per_example[examples], atol=1e-12)
    np.testing.assert_allclose(mixed.per_run, plain.per_run[models], atol=1e-12)


def test_distances_of_certain_and_opposite_predictions():
    u, r = np.tile([1.0, 0.0], (2, 3, 1)), np.tile([0.0, 1.0], (2, 3, 1))
    assert (activation_l1(u, r).value, disagreement(u, r).value) == (2.0, 1.0)


def test_disagreement_counts_predictions_not_class_numbers():
    u, r = np.eye(10)[[[0, 0]]], np.eye(10)[[[9, 0]]]
    assert disagreement(u, r).value == 0.5
