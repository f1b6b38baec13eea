"""What every attack family does with input that is wrong, extreme, or tells nothing."""

import numpy as np
import pytest

from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.attacks.family import AttackFamily
from lethe.metrics.scoring.epsilon import per_example_epsilon

FAMILIES = list(AttackFamily)
PUBLISHED = [family for family in FAMILIES if family.is_published]


@pytest.fixture
def sides():
    rng = np.random.default_rng(0)
    return rng.normal(0, 1, (16, 5)), rng.normal(0.5, 1, (16, 5))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_non_finite_value_is_named_by_side_model_and_example(sides, family, value):
    unlearned, retrained = sides
    retrained[3, 2] = value
    with pytest.raises(InvalidScoreInput, match="retrained confidence of model 3 on example 2") as caught:
        per_example_epsilon(unlearned, retrained, attacks=family)
    assert (caught.value.side, caught.value.model, caught.value.example) == ("retrained", 3, 2)


@pytest.mark.parametrize("family", FAMILIES)
def test_unequal_numbers_of_models_are_refused(sides, family):
    with pytest.raises(InvalidScoreInput, match="unlearned has 16, retrained 15"):
        per_example_epsilon(sides[0], sides[1][:15], attacks=family)


def test_unequal_numbers_of_examples_are_refused(sides):
    with pytest.raises(InvalidScoreInput, match="unlearned has 5, retrained 4"):
        per_example_epsilon(sides[0], sides[1][:, :4])


@pytest.mark.parametrize(
    ("unlearned", "message"),
    [
        (np.zeros(4), r"must have shape \(n_models, n_examples\), not \(4,\)"),
        (np.zeros((1, 4)), "at least 2 models, not 1"),
        (np.zeros((4, 0)), "at least 1 forget example"),
        (np.array([["a", "b"], ["c", "d"]]), "must be real numbers"),
        (np.zeros((4, 4), complex), "must be real numbers"),
    ],
)
def test_a_wrong_array_is_refused(unlearned, message):
    with pytest.raises(InvalidScoreInput, match=message):
        per_example_epsilon(unlearned, np.zeros((4, 4)))


@pytest.mark.parametrize("delta", [-0.1, 1.0, float("nan")])
def test_a_delta_outside_its_range_is_refused(sides, delta):
    with pytest.raises(InvalidScoreInput, match="delta must be within"):
        per_example_epsilon(*sides, delta=delta)


@pytest.mark.parametrize("cap", [0.0, -1.0, float("nan")])
def test_a_cap_that_is_not_positive_is_refused(sides, cap):
    with pytest.raises(InvalidScoreInput, match="cap on epsilon"):
        per_example_epsilon(*sides, cap=cap)


def test_reference_refuses_a_statistic_beyond_its_grids(sides):
    unlearned, retrained = sides
    unlearned[7, 1] = -(2.0**21)
    with pytest.raises(InvalidScoreInput, match="unlearned confidence of model 7 on example 1") as caught:
        per_example_epsilon(unlearned, retrained, attacks=AttackFamily.REFERENCE)
    assert caught.value.model == 7


def test_exact_takes_the_statistic_that_reference_refuses(sides):
    unlearned, retrained = sides
    expected = per_example_epsilon(unlearned, retrained, attacks=AttackFamily.EXACT)
    np.testing.assert_array_equal(
        per_example_epsilon(unlearned * 2.0**100, retrained * 2.0**100, attacks=AttackFamily.EXACT), expected
    )


@pytest.mark.parametrize("family", [AttackFamily.DISENTANGLED, AttackFamily.CROSSFIT])
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
    apart = retrained + 1e-5
    overlapping = retrained + 5e-7
    assert per_example_epsilon(apart, retrained, attacks=AttackFamily.REFERENCE)[0] == 50.0
    both = [per_example_epsilon(overlapping, retrained, attacks=f)[0] for f in (AttackFamily.REFERENCE, "exact")]
    assert both[0] == both[1]
    assert 0.0 < both[0] < 50.0


@pytest.mark.parametrize("family", FAMILIES)
def test_epsilon_stays_within_zero_and_the_cap(sides, family):
    epsilon = per_example_epsilon(sides[0] * 10, sides[1], attacks=family, cap=1.5)
    assert np.all((epsilon >= 0.0) & (epsilon <= 1.5))
    assert epsilon.max() == 1.5


@pytest.mark.parametrize("family", FAMILIES)
def test_the_input_is_left_unchanged(sides, family):
    before = [side.copy() for side in sides]
    per_example_epsilon(*sides, attacks=family)
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


def test_permuted_copy_of_retrained_models_has_epsilon_zero():
    retrained = np.random.default_rng(2).normal(0, 2, (64, 9))
    permuted = np.random.default_rng(4).permutation(retrained, axis=0)
    np.testing.assert_array_equal(per_example_epsilon(permuted, retrained, attacks="reference"), np.zeros(9))


def test_a_peaky_side_reaches_the_cap_whichever_it_is():
    narrow, wide = np.linspace(0, 0.009, 16)[:, None], np.linspace(-0.5, 0.5, 16)[:, None]
    assert per_example_epsilon(narrow, wide, attacks=AttackFamily.REFERENCE)[0] == 50.0
    assert per_example_epsilon(wide, narrow, attacks=AttackFamily.REFERENCE)[0] == 50.0
