"""Replicates made by repeating sorted values, against replicates made by choosing and sorting again."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.attacks.disentangled import disentangled_epsilon
from lethe.metrics.scoring.attacks.family import AttackFamily
from lethe.metrics.scoring.epsilon import forgetting_quality, per_example_epsilon
from lethe.metrics.scoring.resampling import (
    Replicates,
    interval_around,
    kept_halves,
    replicate_forgetting,
    replicate_ratio,
    require_resamples,
)
from lethe.metrics.scoring.samples import resampled, sort_samples
from lethe.metrics.scoring.score import ModelOutputs, score


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(st.integers(-5, 5), min_size=3, max_size=3), min_size=2, max_size=9), st.integers(0, 2**32 - 1)
)
def test_repeating_equals_choosing_and_sorting(rows, seed):
    values = np.array(rows, float)
    repeats = np.random.default_rng(seed).integers(0, 4, len(values))
    expected = np.sort(np.repeat(values, repeats, axis=0).T, axis=1)
    np.testing.assert_array_equal(resampled(sort_samples(values), repeats), expected)


@pytest.mark.parametrize("family", [family for family in AttackFamily if family.is_published])
def test_replicates_equal_scoring_the_kept_models_directly(family):
    rng = np.random.default_rng(0)
    u, r = rng.normal(0, 1, (33, 6)), rng.normal(0.5, 1, (33, 6))
    found = replicate_forgetting(u, r, attacks=family, delta=1e-5, cap=50.0, n_resamples=20, seed=7)
    for b, (keep_u, keep_r) in enumerate(kept_halves(33, n_resamples=20, seed=7)):
        kept = u[keep_u == 1], r[keep_r == 1]
        if family is AttackFamily.DISENTANGLED:
            epsilon = disentangled_epsilon(*kept, delta=1e-5, cap=50.0, seed=7 + b)
        else:
            epsilon = per_example_epsilon(*kept, attacks=family)
        assert found[b] == forgetting_quality(epsilon, n_models=33)


def test_halves_leave_out_half_of_each_side_apart():
    draws = list(kept_halves(9, n_resamples=20, seed=0))
    assert {(u.sum(), r.sum()) for u, r in draws} == {(5, 5)}
    assert any(not np.array_equal(u, r) for u, r in draws)
    assert len({u.tobytes() for u, _ in draws}) > 10


def test_the_standard_error_of_a_mean_ratio_is_the_textbooks():
    # Against a constant denominator the ratio is a mean, whose standard error is known.
    rng = np.random.default_rng(3)
    accuracy = rng.uniform(0.4, 0.6, 101)
    ratios = replicate_ratio(accuracy, np.full(101, 1.0), n_resamples=4000, seed=1)
    factor = math.sqrt((101 - 50) / 50)
    assert factor * ratios.std(ddof=1) == pytest.approx(accuracy.std(ddof=1) / math.sqrt(101), rel=0.05)


def test_replicates_are_scaled_for_an_odd_number_of_models():
    rng = np.random.default_rng(4)
    sides = [ModelOutputs(rng.normal(0, 1, (9, 4))) for _ in range(2)]
    assert score(*sides, n_resamples=20).replicates.factor == pytest.approx(math.sqrt(5 / 4))


@pytest.mark.parametrize(("attacks", "least"), [(AttackFamily.CROSSFIT, 0.75), (AttackFamily.REFERENCE, 0.85)])
def test_the_interval_covers_the_mean_score_of_fresh_models(attacks, least):
    rng = np.random.default_rng(8)

    def draw(shift):
        return ModelOutputs(np.linspace(-2, 4, 20) + rng.normal(shift, 1.5, (48, 20)))

    results = [score(draw(1.0), draw(0.0), n_resamples=30, attacks=attacks) for _ in range(40)]
    mean = np.mean([one.forgetting_quality for one in results])
    covered = np.mean([one.interval[0] <= mean <= one.interval[1] for one in results])
    assert covered >= least


def test_an_interval_is_cut_off_at_zero_below():
    assert interval_around(0.01, 0.02) == (0.0, pytest.approx(0.01 + 1.96 * 0.02, abs=1e-5))


def test_standard_errors_are_scaled_deviations_of_n_minus_one():
    found = Replicates(np.array([1.0, 4.0, 7.0]), np.array([2.0, 4.0, 6.0]), factor=0.5, seed=0, n_models=9)
    assert found.standard_error() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("seed", "n_models", "n_resamples", "paired"),
    [(0, 9, 3, True), (1, 9, 3, False), (0, 8, 3, False), (0, 9, 4, False)],
)
def test_replicates_are_paired_by_seed_models_and_number(seed, n_models, n_resamples, paired):
    ours = Replicates(np.zeros(3), np.zeros(3), factor=1.0, seed=0, n_models=9)
    theirs = Replicates(np.zeros(n_resamples), np.zeros(n_resamples), factor=1.0, seed=seed, n_models=n_models)
    if paired:
        ours.require_paired(theirs)
        return
    with pytest.raises(InvalidScoreInput, match="not paired"):
        ours.require_paired(theirs)


@pytest.mark.parametrize("side", [0, 1])
def test_replicates_without_a_value_are_refused(side):
    pair = [Replicates(np.zeros(2), np.zeros(2), factor=1.0, seed=0, n_models=9) for _ in range(2)]
    pair[side].headline[1] = np.nan
    with pytest.raises(InvalidScoreInput, match="no utility ratio"):
        pair[0].require_paired(pair[1])


def test_twenty_resamples_of_eight_models_are_the_fewest():
    require_resamples(20, n_models=8)
    with pytest.raises(InvalidScoreInput, match="at least 20 resamples, not 19"):
        require_resamples(19, n_models=8)
    with pytest.raises(InvalidScoreInput, match="at least 8 models on each side, not 7"):
        require_resamples(20, n_models=7)


def test_a_ratio_without_retrained_accuracy_has_no_value():
    ratios = replicate_ratio(np.ones(8), np.array([1.0, 0, 0, 0, 0, 0, 0, 0]), n_resamples=40, seed=0)
    kept = [bool(retrained[0]) for _, retrained in kept_halves(8, n_resamples=40, seed=0)]
    assert np.isfinite(ratios).tolist() == kept
    assert set(ratios[kept]) == {4.0}
