"""Replicates, paired comparisons of submissions, and the setups of the paper."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.attacks.disentangled import disentangled_epsilon
from lethe.metrics.scoring.attacks.family import AttackFamily
from lethe.metrics.scoring.epsilon import forgetting_quality, per_example_epsilon
from lethe.metrics.scoring.protocols import EvaluationSetup, SetupPlan, mean_with_interval, score_experiments
from lethe.metrics.scoring.resampling import (
    Replicates,
    ScoredEntry,
    compare,
    interval_around,
    kept_halves,
    replicate_forgetting,
    replicate_ratio,
    resampled,
    sort_samples,
    tied_groups,
    two_sided_p_value,
)
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


def test_an_interval_is_cut_off_at_zero_below_and_of_n_minus_one():
    found = Replicates(np.array([1.0, 4.0, 7.0]), np.array([2.0, 4.0, 6.0]), factor=0.5, seed=0, n_models=9)
    assert found.standard_error() == pytest.approx(1.0)
    assert interval_around(0.01, 0.02) == (0.0, pytest.approx(0.01 + 1.96 * 0.02, abs=1e-5))


def test_a_ratio_without_retrained_accuracy_has_no_value():
    ratios = replicate_ratio(np.ones(8), np.array([1.0, 0, 0, 0, 0, 0, 0, 0]), n_resamples=40, seed=0)
    kept = [bool(retrained[0]) for _, retrained in kept_halves(8, n_resamples=40, seed=0)]
    assert np.isfinite(ratios).tolist() == kept
    assert set(ratios[kept]) == {4.0}


def replicates(values, seed=0, n_models=16, factor=1.0):
    values = np.asarray(values, float)
    return Replicates(values, values, factor, seed, n_models)


def standing(headline, noise, **kwargs):
    return ScoredEntry(headline, replicates(headline + np.asarray(noise), **kwargs))


NOISE = np.array([-1.0, 1.0] * 10)


def test_the_shared_part_of_the_noise_cancels():
    found = compare(standing(0.5, NOISE), standing(0.3, NOISE))
    assert found.difference == pytest.approx(0.2)
    assert found.standard_error == pytest.approx(0.0, abs=1e-12)
    assert found.p_value < 1e-9


def test_the_standard_error_of_the_difference_by_hand():
    found = compare(standing(0.5, NOISE, factor=2.0), standing(0.3, -NOISE))
    error = 2.0 * np.std(2 * NOISE, ddof=1)
    assert found.standard_error == pytest.approx(error)
    assert found.interval == pytest.approx((0.2 - 1.959964 * error, 0.2 + 1.959964 * error))


@pytest.mark.parametrize(
    ("difference", "error", "expected"),
    [(0.0, 0.0, 1.0), (0.0, 1.0, 1.0), (0.1, 0.0, 0.0), (1.959964, 1.0, 0.05), (-1.959964, 1.0, 0.05)],
)
def test_p_values(difference, error, expected):
    assert two_sided_p_value(difference, error) == pytest.approx(expected, abs=1e-6)


def test_groups_are_headed_by_their_best_and_keep_the_order_given():
    noise = NOISE * 0.01
    # Errors of a difference are about 0.0205, so 0.04 apart ties and 0.05 apart does not.
    board = [standing(0.20, noise), standing(0.50, -noise), standing(0.46, noise), standing(0.42, noise)]
    assert tied_groups(board) == [2, 0, 0, 1]
    assert tied_groups([]) == []


def test_being_tied_is_judged_against_the_head_of_the_group():
    noise = NOISE * 0.01
    signs = [1, -1, 1, -1]
    board = [standing(0.5 - 0.03 * k, sign * noise) for k, sign in enumerate(signs)]
    assert tied_groups(board) == [0, 0, 1, 1]


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(
    ("other", "message"),
    [
        (standing(0.3, NOISE, seed=1), "not paired"),
        (standing(0.3, NOISE, n_models=17), "not paired"),
        (standing(0.3, NOISE[:-2]), "not paired"),
        (standing(0.3, np.where(NOISE > 0, np.nan, 0.0)), "no utility ratio"),
    ],
)
def test_replicates_that_are_not_paired_are_refused(other, message, swapped):
    pair = (standing(0.5, NOISE), other)
    with pytest.raises(InvalidScoreInput, match=message):
        compare(*(pair[::-1] if swapped else pair))


@pytest.mark.parametrize("significance", [0.0, 1.0, float("nan")])
def test_a_level_outside_its_range_is_refused(significance):
    with pytest.raises(InvalidScoreInput, match="significance"):
        tied_groups([], significance=significance)


def test_one_method_run_twice_is_tied_and_a_better_one_is_not():
    rng = np.random.default_rng(1)
    retrained = ModelOutputs(rng.normal(0, 1.5, (128, 40)))

    def entry(shift):
        found = score(ModelOutputs(rng.normal(shift, 1.5, (128, 40))), retrained, n_resamples=60)
        return ScoredEntry(found.headline, found.replicates)

    assert tied_groups([entry(0.8), entry(0.8), entry(0.0)]) == [1, 1, 0]


FULL, BOOTSTRAP = EvaluationSetup.FULL, EvaluationSetup.BOOTSTRAP
REUSE_1, REUSE_N = EvaluationSetup.REUSE_N_1, EvaluationSetup.REUSE_N_N


@pytest.mark.parametrize(
    ("setup", "original", "retrained", "runs"),
    [(REUSE_1, 1, 512, 10240), (REUSE_N, 512, 512, 10240), (FULL, 10240, 10240, 10240), (BOOTSTRAP, 4096, 4096, 4096)],
)
def test_table_1(setup, original, retrained, runs):
    plan = SetupPlan(setup, n_models=512, n_experiments=20)
    assert (plan.n_original, plan.n_retrained, plan.n_runs) == (original, retrained, runs)


@pytest.mark.parametrize(
    ("setup", "originals"), [(REUSE_1, [0] * 6), (REUSE_N, [0, 1, 2, 0, 1, 2]), (FULL, [0, 1, 2, 3, 4, 5])]
)
def test_the_original_of_every_run(setup, originals):
    plan = SetupPlan(setup, n_models=3, n_experiments=2)
    assert [plan.original_of_run(run) for run in range(plan.n_runs)] == originals


@pytest.mark.parametrize(("setup", "retrained"), [(REUSE_1, [0, 1, 2]), (REUSE_N, [0, 1, 2]), (FULL, [3, 4, 5])])
def test_the_second_experiment_has_its_own_runs(setup, retrained):
    runs, models = SetupPlan(setup, n_models=3, n_experiments=2).models_of_experiment(1)
    assert (runs.tolist(), models.tolist()) == ([3, 4, 5], retrained)


def test_bootstrap_draws_triplets_by_seed_and_experiment():
    plan = SetupPlan(BOOTSTRAP, n_models=50, n_experiments=2, pool_size=60)
    runs, models = plan.models_of_experiment(0, seed=1)
    np.testing.assert_array_equal(runs, models)
    np.testing.assert_array_equal(runs, plan.models_of_experiment(0, seed=1)[0])
    assert len(set(runs.tolist())) < 50
    assert not np.array_equal(runs, plan.models_of_experiment(1, seed=1)[0])
    assert not np.array_equal(runs, plan.models_of_experiment(0, seed=2)[0])


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: SetupPlan(FULL, 1), "at least 2 models"),
        (lambda: SetupPlan(FULL, 2, n_experiments=0), "at least 1 experiment"),
        (lambda: SetupPlan(FULL, 2, pool_size=9), "belongs to the bootstrap"),
        (lambda: SetupPlan(BOOTSTRAP, 2, pool_size=1), "pool of at least 2"),
        (lambda: SetupPlan(FULL, 3, 2).original_of_run(-1), r"not within 0\.\.5"),
        (lambda: SetupPlan(FULL, 3, 2).original_of_run(6), r"not within 0\.\.5"),
        (lambda: SetupPlan(FULL, 3, 2).models_of_experiment(2), "experiment 2"),
        (
            lambda: score_experiments(outputs(0, 47), outputs(1, 48), SetupPlan(FULL, 16, 3)),
            "48 unlearned models, not 47",
        ),
    ],
)
def test_a_plan_without_sense_and_what_is_outside_of_it_are_refused(ask, message):
    with pytest.raises(InvalidScoreInput, match=message):
        ask()


def outputs(seed, n_models):
    rng = np.random.default_rng(seed)
    return ModelOutputs(rng.normal(0, 1, (n_models, 10)), rng.uniform(0.8, 1, n_models), rng.uniform(0.6, 1, n_models))


@pytest.mark.parametrize(("setup", "n_retrained"), [(REUSE_1, 16), (REUSE_N, 16), (FULL, 48)])
def test_experiments_are_scored_each_on_its_own_models(setup, n_retrained):
    plan = SetupPlan(setup, n_models=16, n_experiments=3)
    u, r = outputs(0, 48), outputs(1, n_retrained)
    found = score_experiments(u, r, plan)
    own = slice(32, 48) if setup is FULL else slice(0, 16)
    last = score(
        ModelOutputs(u.confidences[32:], u.retain_accuracy[32:], u.test_accuracy[32:]),
        ModelOutputs(r.confidences[own], r.retain_accuracy[own], r.test_accuracy[own]),
    )
    assert found.scores[2].final_score == last.final_score
    assert found.headline == pytest.approx(np.mean([one.final_score for one in found.scores]))
    assert found.interval[0] < found.headline < found.interval[1]


def test_the_bootstrap_scores_its_draws():
    plan = SetupPlan(BOOTSTRAP, n_models=16, n_experiments=2, pool_size=40)
    u, r = outputs(0, 40), outputs(1, 40)
    runs, models = plan.models_of_experiment(1, seed=3)
    expected = score(ModelOutputs(u.confidences[runs]), ModelOutputs(r.confidences[models]), seed=3)
    assert score_experiments(u, r, plan, seed=3).scores[1].forgetting_quality == expected.forgetting_quality


def test_students_interval_by_hand():
    # Three values with standard deviation 1: t(0.975, 2) = 4.302653.
    mean, (low, high) = mean_with_interval(np.array([1.0, 2.0, 3.0]))
    assert mean == 2.0
    assert (high - 2.0, 2.0 - low) == pytest.approx((4.302653 / 3**0.5,) * 2, rel=1e-6)
    assert mean_with_interval(np.array([0.5])) == (0.5, None)
