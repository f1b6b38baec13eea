"""Scores beside the oracle's, and signs of outputs that are not what they should be."""

import math
from dataclasses import replace

import numpy as np
import pytest

from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.attacks.family import AttackFamily
from lethe.metrics.scoring.calibration import SUSPECT_DISAGREEMENT, calibrate, doubt_about, suspicion
from lethe.metrics.scoring.score import ModelOutputs, score
from tests.support.entries_without_unlearning import Confidences, some_runs_scaled


@pytest.fixture(scope="module")
def retrained():
    return draw(0)


def draw(seed, shift=0.0, n_models=128):
    return ModelOutputs(np.random.default_rng(seed).normal(shift, 1.5, (n_models, 40)))


def scored(outputs, retrained, attacks=AttackFamily.REFERENCE, **kwargs):
    return score(outputs, retrained, n_resamples=60, attacks=attacks, **kwargs)


def test_another_set_of_retrained_models_scores_like_the_oracle(retrained):
    found = calibrate(scored(draw(1), retrained), scored(draw(2), retrained))
    assert found.interval[0] <= 1.0 <= found.interval[1]
    assert not found.leaked


def test_the_fraction_is_the_ratio_of_the_scores(retrained):
    ours, oracle = scored(draw(1, shift=1.0), retrained), scored(draw(2), retrained)
    found = calibrate(ours, oracle)
    assert found.fraction == ours.headline / oracle.headline
    assert found.interval[1] < 1.0
    assert found.excess < 0.0


def test_a_fraction_above_one_stays_and_has_the_interval_of_paired_replicates(retrained):
    ours, oracle = scored(draw(2), retrained), scored(draw(1, shift=1.0), retrained)
    found = calibrate(ours, oracle)
    assert found.fraction == ours.headline / oracle.headline > 1.0
    spread = np.std(ours.replicates.headline - found.fraction * oracle.replicates.headline, ddof=1)
    reach = 1.959963984540054 * ours.replicates.factor * spread / oracle.headline
    assert (found.interval[1] - found.interval[0]) / 2 == pytest.approx(reach) or found.interval[0] == 0.0
    assert found.interval[1] == pytest.approx(found.fraction + reach)


@pytest.mark.parametrize(("quality", "excess"), [(0.5, math.inf), (0.3, -math.inf), (0.4, 0.0)])
def test_a_difference_without_any_spread_is_beyond_all_errors(retrained, quality, excess):
    made = scored(draw(2), retrained)
    constant = replace(made.replicates, forgetting_quality=np.full(60, 0.4))
    oracle = replace(made, forgetting_quality=0.4, replicates=constant)
    found = calibrate(replace(oracle, forgetting_quality=quality), oracle)
    assert found.excess == excess
    assert found.leaked == (excess == math.inf)


@pytest.mark.parametrize("blur", [0.0, 0.02])
def test_copies_of_the_retrained_models_are_flagged_as_leaked(retrained, blur):
    rng = np.random.default_rng(3)
    copied = rng.permutation(retrained.confidences, axis=0) + blur * rng.normal(size=(128, 40))
    assert calibrate(scored(ModelOutputs(copied), retrained), scored(draw(2), retrained)).leaked


def with_accuracies(outputs):
    accuracy = np.full(128, 0.9)
    return ModelOutputs(outputs.confidences, accuracy, accuracy)


UNPAIRED = {
    "another family": (lambda r: scored(draw(2), r, attacks=AttackFamily.EXACT), "exact attacks"),
    "no resamples": (lambda r: score(draw(2), r, attacks=AttackFamily.REFERENCE), "needs resamples"),
    "another seed": (lambda r: scored(draw(2), r, seed=1), "not paired"),
    "a score of zero": (lambda r: scored(draw(2, shift=100.0), r), "oracle's score is 0"),
    "accuracies": (lambda r: scored(with_accuracies(draw(2)), with_accuracies(r)), "only one of"),
}


@pytest.mark.parametrize("fault", UNPAIRED)
def test_an_oracle_that_cannot_be_compared_is_refused(retrained, fault):
    make_oracle, said = UNPAIRED[fault]
    with pytest.raises(InvalidScoreInput, match=said):
        calibrate(scored(draw(1), retrained), make_oracle(retrained))


def test_independent_runs_are_not_suspicious(retrained):
    found = suspicion(draw(1).confidences, retrained.confidences)
    assert (found.repeated_runs, found.copied_models) == (0, 0)
    assert found.spread_ratio == pytest.approx(1.0, abs=0.1)
    assert not found.deterministic
    assert not found.copied


def test_one_model_returned_every_time_is_deterministic(retrained):
    found = suspicion(np.tile(retrained.confidences[:1] + 0.5, (128, 1)), retrained.confidences)
    assert found.repeated_runs == 127
    assert found.deterministic
    assert not found.copied


def test_runs_that_differ_by_rounding_alone_are_deterministic(retrained):
    noise = np.random.default_rng(5).normal(0, 1e-6, (128, 40))
    found = suspicion(retrained.confidences[:1] + 0.5 + noise, retrained.confidences)
    assert found.repeated_runs == 0
    assert found.deterministic


def test_runs_that_equal_retrained_models_are_copied(retrained):
    runs = draw(1).confidences.copy()
    runs[:3] = retrained.confidences[10:13]
    found = suspicion(runs, retrained.confidences)
    assert found.copied_models == 3
    assert found.copied
    assert not found.deterministic


def test_examples_without_retrained_spread_are_ignored():
    constant = np.full((8, 3), 103.6)
    assert suspicion(constant + np.arange(8)[:, None], constant).spread_ratio == float("inf")


def test_other_examples_are_refused(retrained):
    with pytest.raises(InvalidScoreInput, match="retrained 40"):
        suspicion(retrained.confidences[:, :39], retrained.confidences)


def test_the_spread_of_outputs_of_any_scale_is_compared():
    values = np.random.default_rng(6).normal(0, 0.01, (64, 5))
    assert suspicion(values * 0.5, values).spread_ratio == pytest.approx(0.5)
    mixed = np.concatenate([values, np.full((64, 4), 1.0)], axis=1)
    assert suspicion(mixed * 0.5, mixed).spread_ratio == pytest.approx(0.5)


@pytest.mark.parametrize(("n_same", "flagged"), [(1, False), (2, True)])
def test_more_than_one_per_cent_of_the_runs_must_repeat_or_be_copied(n_same, flagged):
    runs, others = (np.random.default_rng(seed).normal(0, 1, (100, 4)) for seed in (7, 8))
    copied = runs.copy()
    copied[:n_same] = others[:n_same]
    found = suspicion(copied, others)
    assert (found.copied_models, found.copied) == (n_same, flagged)
    runs[1 : n_same + 1] = runs[0]
    found = suspicion(runs, others)
    assert (found.repeated_runs, found.deterministic) == (n_same, flagged)


def test_a_leak_is_an_excess_of_more_than_its_limit_of_standard_errors(retrained):
    ours, oracle = scored(draw(1), retrained), scored(draw(2), retrained)
    found = calibrate(ours, oracle)
    spread = np.std(ours.replicates.forgetting_quality - oracle.replicates.forgetting_quality, ddof=1)
    difference = ours.forgetting_quality - oracle.forgetting_quality
    assert found.excess == pytest.approx(difference / (ours.replicates.factor * spread))
    assert calibrate(oracle, oracle).excess == 0.0


def doubt(unlearned, retrained, oracle):
    """Return the doubt about confidences that the crossfit attacks rank."""
    ours, best = (
        scored(ModelOutputs(side), ModelOutputs(retrained), AttackFamily.CROSSFIT) for side in (unlearned, oracle)
    )
    return doubt_about(ours, best, unlearned=unlearned, oracle_models=oracle, retrained=retrained)


@pytest.fixture(scope="module")
def given():
    return Confidences.drawn(64, 40, 0)


@pytest.fixture(scope="module")
def both(given):
    return given.retrained(), given.retrained()


@pytest.mark.parametrize("shift", [0.0, 0.5, 3.0])
def test_honest_outputs_are_not_doubted(given, both, shift):
    found = doubt(given.retrained() + shift, *both)
    assert found.reasons == ()
    assert not found.is_held
    assert found.disagreement < SUSPECT_DISAGREEMENT


def test_one_far_run_is_doubted_since_families_disagree(given, both):
    found = doubt(some_runs_scaled(0.0, 20.0)(given), *both)
    assert found.disagreement > 0.5
    assert found.reasons[0].startswith("The reference attacks give")
    assert not found.is_held, "the ranking's family gives it nothing, so nothing is to be held"


def test_retrained_models_outputs_are_held(both):
    found = doubt(both[0], *both)
    assert found.copied_models == 64
    assert found.reasons[-1] == "64 runs returned exactly a retrained model's outputs."
    assert found.is_held
