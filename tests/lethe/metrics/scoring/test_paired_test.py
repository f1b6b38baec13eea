"""Paired comparisons and tied groups."""

import numpy as np
import pytest

from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.resampling import Replicates, ScoredEntry, compare, tied_groups, two_sided_p_value
from lethe.metrics.scoring.score import ModelOutputs, score


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


def test_being_tied_is_judged_against_the_head_of_the_group():
    noise = NOISE * 0.01
    signs = [1, -1, 1, -1]
    board = [standing(0.5 - 0.03 * k, sign * noise) for k, sign in enumerate(signs)]
    assert tied_groups(board) == [0, 0, 1, 1]


def test_no_submission_has_no_group():
    assert tied_groups([]) == []


@pytest.mark.parametrize("other", [{"seed": 1}, {"n_models": 17}])
def test_replicates_made_otherwise_are_refused(other):
    with pytest.raises(InvalidScoreInput, match="not paired"):
        compare(standing(0.5, NOISE), standing(0.3, NOISE, **other))


def test_replicates_of_another_length_are_refused():
    with pytest.raises(InvalidScoreInput, match="not paired"):
        compare(standing(0.5, NOISE), standing(0.3, NOISE[:-2]))


def test_a_replicate_without_value_is_refused():
    with pytest.raises(InvalidScoreInput, match="no utility ratio"):
        compare(standing(0.5, NOISE), standing(0.3, np.where(NOISE > 0, np.nan, 0.0)))


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
