"""Epsilon of every attack family, the disentangled attacks, buckets and forgetting quality."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.attacks.disentangled import bandwidths, halves, smoothed_masses
from lethe.metrics.scoring.attacks.family import AttackFamily
from lethe.metrics.scoring.epsilon import (
    bucket_points,
    forgetting_quality,
    n_buckets,
    n_judged_models,
    per_example_epsilon,
)
from tests.lethe.metrics.scoring.literal import literal_forgetting_quality

FAMILIES = list(AttackFamily)
PUBLISHED = [family for family in FAMILIES if family.is_published]
DIVIDED = [family for family in FAMILIES if family.divides_models]


@pytest.fixture
def sides():
    rng = np.random.default_rng(0)
    return rng.normal(0, 1, (16, 5)), rng.normal(0.5, 1, (16, 5))


def epsilon(unlearned, retrained, seed=0):
    return per_example_epsilon(unlearned, retrained, attacks=AttackFamily.DISENTANGLED, seed=seed)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_non_finite_value_is_named_by_side_model_and_example(sides, family, value):
    unlearned, retrained = sides
    retrained[3, 2] = value
    with pytest.raises(InvalidScoreInput, match=r"retrained confidence.* model 3.* example 2") as caught:
        per_example_epsilon(unlearned, retrained, attacks=family)
    assert (caught.value.side, caught.value.model, caught.value.example) == ("retrained", 3, 2)


FOUR = np.zeros((4, 4))
REFUSED = {
    "unequal numbers of models": (np.zeros((5, 4)), {}, "unlearned has 5, retrained 4"),
    "unequal numbers of examples": (np.zeros((4, 5)), {}, "unlearned has 5, retrained 4"),
    "one axis": (np.zeros(4), {}, r"must have shape \(.*models, .*examples\), not \(4,\)"),
    "one model": (np.zeros((1, 4)), {}, "at least 2 models, not 1"),
    "no example": (np.zeros((4, 0)), {}, "example"),
    "words": (np.full((4, 4), "a"), {}, "must be real numbers"),
    "complex": (np.zeros((4, 4), complex), {}, "must be real numbers"),
    **{f"delta {delta}": (FOUR, {"delta": delta}, "delta must be within") for delta in (-0.1, 1.0, math.nan)},
    **{f"cap {cap}": (FOUR, {"cap": cap}, "cap on epsilon") for cap in (0.0, -1.0, math.nan)},
    "beyond the grids": (FOUR - 2.0**21, {"attacks": "reference"}, "unlearned confidence of model 0 on example 0"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_input_without_an_epsilon_is_refused(fault):
    unlearned, options, message = REFUSED[fault]
    with pytest.raises(InvalidScoreInput, match=message):
        per_example_epsilon(unlearned, FOUR, **options)


@pytest.mark.parametrize("family", DIVIDED)
def test_divided_models_are_at_least_four(family):
    with pytest.raises(InvalidScoreInput, match="at least 4 models"):
        per_example_epsilon(np.zeros((3, 1)), np.zeros((3, 1)), attacks=family)


@pytest.mark.parametrize("family", PUBLISHED)
def test_equal_constants_on_both_sides_have_epsilon_zero(family):
    same = np.full((8, 2), 103.6)
    np.testing.assert_array_equal(per_example_epsilon(same, same, attacks=family), [0.0, 0.0])


def test_reference_uses_exact_where_its_grid_is_too_coarse():
    # Both sides lie within a millionth, far below the grid's hundredth: the published program stops here.
    retrained = np.linspace(0.0, 1e-6, 8)[:, None]
    assert per_example_epsilon(retrained + 1e-5, retrained, attacks=AttackFamily.REFERENCE)[0] == 50.0
    both = [per_example_epsilon(retrained + 5e-7, retrained, attacks=family)[0] for family in ("reference", "exact")]
    assert both[0] == both[1]
    assert 0.0 < both[0] < 50.0


@pytest.mark.parametrize("family", FAMILIES)
def test_epsilon_stays_within_zero_and_the_cap_and_changes_no_input(sides, family):
    before = [side.copy() for side in sides]
    found = per_example_epsilon(*sides, attacks=family, cap=1.5)
    assert np.all((found >= 0.0) & (found <= 1.5))
    assert per_example_epsilon(sides[0] * 10, sides[1], attacks=family, cap=1.5).max() == 1.5
    for side, copy in zip(sides, before, strict=True):
        np.testing.assert_array_equal(side, copy)


@pytest.mark.parametrize("family", [AttackFamily.REFERENCE, AttackFamily.EXACT])
def test_the_order_of_models_changes_nothing(sides, family):
    rng = np.random.default_rng(3)
    shuffled = [rng.permutation(side, axis=0) for side in sides]
    np.testing.assert_array_equal(
        per_example_epsilon(*shuffled, attacks=family), per_example_epsilon(*sides, attacks=family)
    )


@pytest.mark.parametrize("family", PUBLISHED)  # crossfit orders runs by all of their values
def test_an_example_is_scored_alone(sides, family):
    together = per_example_epsilon(*sides, attacks=family)
    alone = [per_example_epsilon(sides[0][:, [s]], sides[1][:, [s]], attacks=family)[0] for s in range(5)]
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("family", DIVIDED)
def test_the_seed_fixes_the_result_and_scale_and_place_change_nothing(family):
    rng = np.random.default_rng(0)
    u, r = rng.normal(0, 1, (64, 8)), rng.normal(1, 2, (64, 8))
    first, again, other = (per_example_epsilon(u, r, attacks=family, seed=seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    moved = per_example_epsilon(u * 1000.0 + 5.0, r * 1000.0 + 5.0, attacks=family, seed=5)
    np.testing.assert_allclose(moved, first, rtol=1e-6)


def test_the_halves_are_disjoint_and_cover_all_models():
    fit, judge = halves(np.arange(11.0)[:, None], seed=3, side=0)
    assert (len(fit), len(judge)) == (6, 5)
    assert sorted(np.concatenate([fit, judge])[:, 0]) == list(range(11))


def test_rule_is_judged_on_other_models_than_fitted_on():
    rng = np.random.default_rng(1)
    u, r = rng.normal(0, 1, (256, 40)), rng.normal(0, 1, (256, 40))
    fitted_and_judged = per_example_epsilon(u, r, attacks=AttackFamily.EXACT)
    assert np.median(epsilon(u, r)) < 0.3 < 1.0 < np.median(fitted_and_judged)


def test_clear_shift_has_nearly_the_true_epsilon():
    # Two unit normals 2 apart, one threshold between: FPR = FNR = Phi(-1), and no threshold is much better.
    rng = np.random.default_rng(2)
    u, r = rng.normal(2, 1, (4096, 3)), rng.normal(0, 1, (4096, 3))
    assert np.all(epsilon(u, r) > math.log((1 - 0.1587) / 0.1587) - 0.3)


@pytest.mark.parametrize("gap", [30.0, 36.0, 37.5, 38.5, 100.0])
def test_rates_that_all_but_vanish_reach_the_cap(gap):
    # The smoothed tails run through subnormal numbers down to zero as the sides move apart.
    rng = np.random.default_rng(6)
    u, r = rng.normal(0, 1, (16, 4)), rng.normal(0, 1, (16, 4)) + gap * 0.7
    np.testing.assert_array_equal(epsilon(u, r), np.full(4, 50.0))


@pytest.mark.parametrize(
    ("row", "spread"),
    [([0.0, 1.0, 2.0, 3.0, 4.0], min(math.sqrt(2.5), 2 / 1.34)), ([0.0, 0.0, 0.0, 0.0, 5.0], math.sqrt(5.0))],
    ids=["quartiles", "deviation where quartiles meet"],
)
def test_bandwidth_is_silvermans_by_hand(row, spread):
    assert bandwidths(np.array([row]))[0] == pytest.approx(0.9 * spread * 5**-0.2)


def test_inside_and_outside_masses_add_to_one_and_far_mass_keeps_its_digits():
    sample = np.random.default_rng(4).normal(0, 1, (30, 4))
    ends = np.array([-1.0, -np.inf, 0.3, -np.inf]), np.array([1.0, 0.0, np.inf, np.inf])
    inside, outside = smoothed_masses(sample, *ends)
    np.testing.assert_allclose(inside + outside, 1.0, rtol=1e-14)
    assert outside[3] == 0.0
    # Some 15 bandwidths out, 1 - inside would be 0; the tail itself is not.
    inside, outside = smoothed_masses(0.1 * sample[:, :1], np.array([-1.0]), np.array([1.0]))
    assert 1.0 - inside[0] < 1e-15
    assert 0.0 < outside[0] < 1e-16


@pytest.mark.parametrize(("n_models", "expected"), [(2, 0), (3, 2), (4, 4), (512, 14), (1024, 14), (65536, 24)])
def test_number_of_buckets(n_models, expected):
    assert n_buckets(n_models) == expected


def test_points_halve_with_every_half_nat():
    found = bucket_points([0.0, 0.49999, 0.5, 0.99, 1.0, 6.5, 6.99, 7.0, 50.0, math.inf], n_models=512)
    assert found.tolist() == [1.0, 1.0, 0.5, 0.5, 0.25, 2.0**-13, 2.0**-13, 0.0, 0.0, 0.0]


@given(st.lists(st.floats(0.0, 60.0), min_size=1, max_size=40), st.integers(2, 70000))
def test_forgetting_quality_equals_the_literal_program(epsilon, n_models):
    assert forgetting_quality(epsilon, n_models=n_models) == literal_forgetting_quality(epsilon, n_models)


@pytest.mark.parametrize(
    ("epsilon", "n_models", "message"),
    [
        ([], 512, "n_examples >= 1"),
        ([[1.0]], 512, "must have shape"),
        ([1.0, math.nan], 512, "example 1 is nan"),
        ([-0.1], 512, "example 0"),
        ([0.0], 1, "at least 2 models"),
    ],
)
def test_an_epsilon_that_is_none_is_refused(epsilon, n_models, message):
    with pytest.raises(InvalidScoreInput, match=message):
        forgetting_quality(epsilon, n_models=n_models)


def test_disentangled_buckets_count_the_judged_half():
    assert n_judged_models(513, attacks=AttackFamily.DISENTANGLED) == 256
    assert n_judged_models(513, attacks=AttackFamily.EXACT) == 513
