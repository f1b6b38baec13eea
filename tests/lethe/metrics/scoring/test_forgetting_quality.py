"""Buckets, points and F."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.attacks.family import AttackFamily
from lethe.metrics.scoring.epsilon import bucket_points, forgetting_quality, n_buckets, n_judged_models
from tests.lethe.metrics.scoring.literal import literal_forgetting_quality


@pytest.mark.parametrize(("n_models", "expected"), [(2, 0), (3, 2), (4, 4), (512, 14), (1024, 14), (65536, 24)])
def test_number_of_buckets(n_models, expected):
    assert n_buckets(n_models) == expected


def test_points_halve_with_every_half_nat():
    epsilon = [0.0, 0.49999, 0.5, 0.99, 1.0, 6.5, 6.99, 7.0, 50.0, math.inf]
    points = bucket_points(epsilon, n_models=512)
    assert points.tolist() == [1.0, 1.0, 0.5, 0.5, 0.25, 2.0**-13, 2.0**-13, 0.0, 0.0, 0.0]


def test_forgetting_quality_is_the_mean_of_the_points():
    assert forgetting_quality([0.0, 0.7, 50.0, 50.0], n_models=512) == 0.375


@given(st.lists(st.floats(0.0, 60.0), min_size=1, max_size=40), st.integers(2, 70000))
def test_forgetting_quality_equals_the_literal_program(epsilon, n_models):
    assert forgetting_quality(epsilon, n_models=n_models) == literal_forgetting_quality(epsilon, n_models)


@given(st.lists(st.floats(0.0, 9.0), min_size=1, max_size=40), st.randoms())
def test_the_order_of_examples_changes_nothing(epsilon, random):
    shuffled = random.sample(epsilon, len(epsilon))
    assert forgetting_quality(shuffled, n_models=512) == forgetting_quality(epsilon, n_models=512)


@pytest.mark.parametrize(
    ("epsilon", "message"),
    [
        ([], "n_examples >= 1"),
        ([[1.0]], "must have shape"),
        ([1.0, math.nan], "example 1 is nan"),
        ([-0.1], "example 0"),
    ],
)
def test_an_epsilon_that_is_none_is_refused(epsilon, message):
    with pytest.raises(InvalidScoreInput, match=message):
        forgetting_quality(epsilon, n_models=512)


def test_one_model_is_refused():
    with pytest.raises(InvalidScoreInput, match="at least 2 models"):
        forgetting_quality([0.0], n_models=1)


def test_disentangled_buckets_count_the_judged_half():
    assert n_judged_models(513, attacks=AttackFamily.DISENTANGLED) == 256
    assert n_judged_models(513, attacks=AttackFamily.EXACT) == 513


def test_zero_epsilon_everywhere_is_one():
    assert forgetting_quality(np.zeros(7), n_models=16) == 1.0
