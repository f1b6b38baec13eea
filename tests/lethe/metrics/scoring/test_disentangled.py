"""Attacks fitted on one half of the models and judged on the smoothed other half."""

import math

import numpy as np
import pytest

from lethe.metrics.scoring.attacks.disentangled import bandwidths, disentangled_epsilon, halves, smoothed_masses
from lethe.metrics.scoring.attacks.family import AttackFamily
from lethe.metrics.scoring.epsilon import per_example_epsilon


def epsilon(unlearned, retrained, seed=0):
    return disentangled_epsilon(unlearned, retrained, delta=1e-5, cap=50.0, seed=seed)


def test_the_halves_are_disjoint_and_cover_all_models():
    models = np.arange(11.0)[:, None]
    fit, judge = halves(models, seed=3, side=0)
    assert (len(fit), len(judge)) == (6, 5)
    assert sorted(np.concatenate([fit, judge])[:, 0]) == list(range(11))


def test_the_seed_fixes_the_result_and_another_changes_it():
    rng = np.random.default_rng(0)
    u, r = rng.normal(0, 1, (64, 8)), rng.normal(1, 1, (64, 8))
    np.testing.assert_array_equal(epsilon(u, r, seed=5), epsilon(u, r, seed=5))
    assert not np.array_equal(epsilon(u, r, seed=5), epsilon(u, r, seed=6))


def test_rule_is_judged_on_other_models_than_fitted_on():
    rng = np.random.default_rng(1)
    u, r = rng.normal(0, 1, (256, 40)), rng.normal(0, 1, (256, 40))
    fitted_and_judged = per_example_epsilon(u, r, attacks=AttackFamily.EXACT)
    assert np.median(epsilon(u, r)) < 0.3 < 1.0 < np.median(fitted_and_judged)


def test_clear_shift_has_nearly_the_true_epsilon():
    # Two unit normals 2 apart, one threshold between: FPR = FNR = Phi(-1), and no threshold is much better.
    rng = np.random.default_rng(2)
    u, r = rng.normal(2, 1, (4096, 3)), rng.normal(0, 1, (4096, 3))
    lowest = math.log((1 - 0.1587) / 0.1587)
    assert np.all(epsilon(u, r) > lowest - 0.3)


def test_two_different_constants_reach_the_cap():
    assert epsilon(np.full((8, 1), 1.0), np.full((8, 1), 2.0))[0] == 50.0


@pytest.mark.parametrize("gap", [30.0, 36.0, 37.5, 38.5, 100.0])
def test_rates_that_all_but_vanish_reach_the_cap(gap):
    # The smoothed tails run through subnormal numbers down to zero as the sides move apart.
    rng = np.random.default_rng(6)
    u, r = rng.normal(0, 1, (16, 4)), rng.normal(0, 1, (16, 4)) + gap * 0.7
    np.testing.assert_array_equal(epsilon(u, r), np.full(4, 50.0))


def test_scale_and_offset_change_nothing_beyond_rounding():
    rng = np.random.default_rng(3)
    u, r = rng.normal(0, 1, (64, 8)), rng.normal(1, 2, (64, 8))
    np.testing.assert_allclose(epsilon(u * 1000.0 + 5.0, r * 1000.0 + 5.0), epsilon(u, r), rtol=1e-9)


def test_bandwidth_is_silvermans_by_hand():
    rows = np.array([[0.0, 1.0, 2.0, 3.0, 4.0]])
    deviation = math.sqrt(2.5)
    assert bandwidths(rows)[0] == pytest.approx(0.9 * min(deviation, 2 / 1.34) * 5**-0.2)


def test_bandwidth_uses_the_deviation_where_quartiles_meet():
    rows = np.array([[0.0, 0.0, 0.0, 0.0, 5.0]])
    assert bandwidths(rows)[0] == pytest.approx(0.9 * math.sqrt(5.0) * 5**-0.2)


def test_inside_and_outside_masses_add_to_one():
    sample = np.random.default_rng(4).normal(0, 1, (30, 4))
    inside, outside = smoothed_masses(
        sample, np.array([-1.0, -np.inf, 0.3, -np.inf]), np.array([1.0, 0.0, np.inf, np.inf])
    )
    np.testing.assert_allclose(inside + outside, 1.0, rtol=1e-14)
    assert outside[3] == 0.0


def test_far_mass_keeps_its_digits():
    # Some 15 bandwidths out, 1 - inside would be 0; the tail itself is not.
    sample = np.random.default_rng(5).normal(0, 0.1, (32, 1))
    inside, outside = smoothed_masses(sample, np.array([-1.0]), np.array([1.0]))
    assert 1.0 - inside[0] < 1e-15
    assert 0.0 < outside[0] < 1e-20
