"""The score of two sets of outputs."""

import json
import math

import numpy as np
import pytest

from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.attacks.family import AttackFamily
from lethe.metrics.scoring.epsilon import per_example_epsilon
from lethe.metrics.scoring.forgetting_quality import forgetting_quality
from lethe.metrics.scoring.score import SCORER_VERSION, ModelOutputs, score


def outputs(seed, shift=0.0, n_models=64, accuracy=0.9):
    rng = np.random.default_rng(seed)
    return ModelOutputs(
        confidences=rng.normal(shift, 1.5, (n_models, 12)),
        retain_accuracy=rng.uniform(accuracy, accuracy + 0.05, n_models),
        test_accuracy=rng.uniform(accuracy - 0.2, accuracy - 0.1, n_models),
    )


@pytest.mark.parametrize("family", list(AttackFamily))
def test_the_final_score_is_the_product_of_its_parts(family):
    u, r = outputs(0, shift=0.3), outputs(1)
    result = score(u, r, attacks=family)
    retain = math.fsum(u.retain_accuracy) / math.fsum(r.retain_accuracy)
    test = math.fsum(u.test_accuracy) / math.fsum(r.test_accuracy)
    assert (result.retain_ratio, result.test_ratio) == (retain, test)
    most = math.inf if family.is_published else 1.0
    assert result.final_score == result.forgetting_quality * min(retain, most) * min(test, most)
    assert result.headline == result.final_score
    np.testing.assert_array_equal(result.epsilon, per_example_epsilon(u.confidences, r.confidences, attacks=family))


def test_forgetting_quality_is_that_of_the_epsilons():
    result = score(outputs(0), outputs(1))
    assert result.forgetting_quality == forgetting_quality(result.epsilon, n_models=64)


def test_without_accuracies_the_score_is_forgetting_quality_alone():
    result = score(ModelOutputs(outputs(0).confidences), ModelOutputs(outputs(1).confidences))
    assert (result.retain_ratio, result.test_ratio, result.final_score) == (None, None, None)
    assert result.headline == result.forgetting_quality


def test_one_accuracy_alone_gives_its_ratio_and_no_final_score():
    u, r = outputs(0), outputs(1)
    result = score(
        ModelOutputs(u.confidences, test_accuracy=u.test_accuracy),
        ModelOutputs(r.confidences, test_accuracy=r.test_accuracy),
    )
    assert result.test_ratio is not None
    assert result.final_score is None


def test_an_accuracy_of_one_side_only_is_refused():
    with pytest.raises(InvalidScoreInput, match="retain accuracies are given for one side only: unlearned has none"):
        score(ModelOutputs(outputs(0).confidences, test_accuracy=outputs(0).test_accuracy), outputs(1))


def test_reordered_models_score_the_same_to_the_last_bit():
    u, r = outputs(0, shift=0.5), outputs(1)
    order = np.random.default_rng(2).permutation(64)
    shuffled = ModelOutputs(u.confidences[order], u.retain_accuracy[order], u.test_accuracy[order])
    scores = [score(side, r, attacks=AttackFamily.REFERENCE).final_score for side in (shuffled, u)]
    assert scores[0] == scores[1]


def test_the_interval_surrounds_the_score_and_is_reproducible():
    u, r = outputs(0, shift=0.5), outputs(1)
    first, second = (score(u, r, n_resamples=40, seed=9) for _ in range(2))
    assert first.interval == second.interval
    assert first.interval[0] < first.final_score < first.interval[1]
    low, high = first.forgetting_quality_interval
    assert low < first.forgetting_quality < high


def test_resamples_do_not_move_the_score():
    u, r = outputs(0), outputs(1)
    assert score(u, r, n_resamples=20).final_score == score(u, r).final_score
    assert score(u, r).interval is None


def test_wider_accuracy_spread_widens_the_final_interval():
    u, r = outputs(0, shift=0.5), outputs(1)
    unsteady = ModelOutputs(u.confidences, np.where(np.arange(64) % 8, 0.0, 1.0), u.test_accuracy)
    steady = ModelOutputs(u.confidences, np.full(64, 0.125), u.test_accuracy)
    widths = [np.diff(score(side, r, n_resamples=60).interval)[0] for side in (unsteady, steady)]
    assert widths[0] > widths[1]


def test_json_holds_every_documented_key_and_survives_a_round_trip():
    result = score(outputs(0, shift=4.0), outputs(1), n_resamples=20)
    found = json.loads(json.dumps(result.as_json(), allow_nan=False))
    assert found["forgetting_quality"] == result.forgetting_quality
    assert found["epsilon"] == result.epsilon.tolist()
    assert found["final_score"] == result.final_score
    assert found["interval"] == list(result.interval)
    assert found["attacks"] == "crossfit"
    assert found["scorer_version"] == SCORER_VERSION
    assert {"retain_ratio", "test_ratio", "forgetting_quality_interval", "n_models"} <= found.keys()


@pytest.mark.parametrize("n_resamples", [-1, 1, 19])
def test_too_few_resamples_are_refused(n_resamples):
    with pytest.raises(InvalidScoreInput, match="at least 20 resamples"):
        score(outputs(0), outputs(1), n_resamples=n_resamples)


def test_an_interval_from_too_few_models_is_refused():
    with pytest.raises(InvalidScoreInput, match="at least 8 models"):
        score(outputs(0, n_models=7), outputs(1, n_models=7), n_resamples=20)


def test_an_unknown_family_is_refused():
    with pytest.raises(ValueError, match="strongest"):
        score(outputs(0), outputs(1), attacks="strongest")
