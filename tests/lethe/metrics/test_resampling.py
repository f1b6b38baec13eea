"""The jackknife's intervals are what its formula says, to the last digit that the formula fixes."""

import math

import numpy as np
import pytest

from lethe.metrics.core.metric_evaluation import (
    NORMAL_QUANTILE_95,
    interval_of_models,
    interval_of_runs,
    jackknife_interval,
    kept_models,
)

UNBOUNDED = (-math.inf, math.inf)


def test_half_of_the_models_stay_and_each_side_draws_by_itself():
    kept = list(kept_models(7, n_resamples=50, seed=3))
    assert all(rows.tolist() == sorted(set(rows.tolist())) and len(rows) == 4 for rows in kept)
    assert {row for rows in kept for row in rows.tolist()} == set(range(7))
    same, seed, stream = (
        [rows.tolist() for rows in kept_models(7, n_resamples=50, **given)]
        for given in ({"seed": 3}, {"seed": 4}, {"seed": 3, "stream": 1})
    )
    assert same == [rows.tolist() for rows in kept]
    assert same not in (seed, stream)


@pytest.mark.parametrize(("n_models", "factor"), [(4, 1.0), (5, math.sqrt(3 / 2)), (9, math.sqrt(5 / 4))])
def test_the_interval_is_the_spread_of_three_replicates(n_models, factor):
    low, high = jackknife_interval(1.0, np.array([0.0, 3.0, 6.0]), n_models=n_models)
    reach = 1.959963984540054 * factor * 3.0  # the standard deviation of 0, 3 and 6 with n - 1
    assert (low, high) == pytest.approx((1.0 - reach, 1.0 + reach))


def test_the_interval_is_cut_off_at_the_bounds():
    assert jackknife_interval(0.5, np.array([0.0, 1.0]), n_models=4, bounds=(0.25, 0.75)) == (0.25, 0.75)


def test_half_of_the_replicates_must_have_a_value():
    assert jackknife_interval(1.0, np.array([1.0, 2.0, np.nan, np.nan]), n_models=4) is not None
    assert jackknife_interval(1.0, np.array([1.0, 2.0, np.nan, np.nan, np.nan]), n_models=4) is None
    assert jackknife_interval(1.0, np.array([1.0, np.nan]), n_models=4) is None
    assert jackknife_interval(math.nan, np.array([1.0, 2.0]), n_models=4) is None


def test_a_mean_of_runs_leaves_out_runs_without_a_value():
    values = np.array([1.0, 2.0, np.nan, 4.0, 8.0])
    settings = {"n_resamples": 4000, "seed": 1, "bounds": UNBOUNDED}
    low, high = interval_of_runs(3.75, values, **settings)
    # all six halves of four values are equally likely
    halves = [1.5, 2.5, 4.5, 3.0, 5.0, 6.0]
    assert (high - low) / 2 == pytest.approx(NORMAL_QUANTILE_95 * float(np.std(halves)), rel=0.05)
    assert interval_of_runs(7 / 3, values[:4], **settings) is None


def test_a_metric_of_several_sides_is_computed_on_halves():
    seen = []
    settings = {"n_resamples": 20, "seed": 0, "bounds": UNBOUNDED}

    def metric(kept):
        seen.append([rows.tolist() for rows in kept])
        return float(len(seen))

    low, high = interval_of_models(10.5, metric, sizes=(6, 6), paired=True, **settings)
    assert all(one == other and len(one) == 3 for one, other in seen)
    assert (low + high) / 2 == pytest.approx(10.5)
    assert (high - low) / 2 == pytest.approx(NORMAL_QUANTILE_95 * math.sqrt(35.0))  # of 1, 2, ..., 20
    seen.clear()
    interval_of_models(10.5, metric, sizes=(6, 6), paired=False, **settings)
    assert any(one != other for one, other in seen)
    assert interval_of_models(1.0, metric, sizes=(3, 6), paired=False, **settings) is None
    assert interval_of_models(1.0, metric, sizes=(4, 6), paired=False, **settings) is not None
    assert interval_of_models(1.0, metric, sizes=(), paired=False, **settings) is None


def test_the_smallest_side_sets_the_factor():
    def metric(kept):
        return float(kept[0].sum() % 2)

    intervals = [
        interval_of_models(0.5, metric, sizes=sizes, paired=False, n_resamples=30, seed=0, bounds=UNBOUNDED)
        for sizes in ((4, 5), (4, 4))
    ]
    assert intervals[0] == intervals[1]
