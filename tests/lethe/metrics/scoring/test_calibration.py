"""Scores beside the oracle's, signs of odd outputs, and what a score is made of."""

import math
from dataclasses import replace

import numpy as np
import pytest

from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.attacks.family import AttackFamily
from lethe.metrics.scoring.calibration import SUSPECT_DISAGREEMENT, calibrate, doubt_about, suspicion
from lethe.metrics.scoring.explanation import (
    Explanation,
    ScoreParts,
    confidence_ratios,
    epsilon_percentiles,
    explain,
    score_parts,
)
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
    ours, oracle = scored(draw(1), retrained), scored(draw(2), retrained)
    found = calibrate(ours, oracle)
    assert found.interval[0] <= 1.0 <= found.interval[1]
    assert not found.leaked
    spread = np.std(ours.replicates.forgetting_quality - oracle.replicates.forgetting_quality, ddof=1)
    difference = ours.forgetting_quality - oracle.forgetting_quality
    assert found.excess == pytest.approx(difference / (ours.replicates.factor * spread))


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


def test_runs_that_differ_by_rounding_alone_are_deterministic(retrained):
    noise = np.random.default_rng(5).normal(0, 1e-6, (128, 40))
    found = suspicion(retrained.confidences[:1] + 0.5 + noise, retrained.confidences)
    assert found.repeated_runs == 0
    assert found.deterministic


def test_other_examples_are_refused(retrained):
    with pytest.raises(InvalidScoreInput, match="retrained 40"):
        suspicion(retrained.confidences[:, :39], retrained.confidences)


def test_the_spread_of_outputs_of_any_scale_is_compared():
    values = np.random.default_rng(6).normal(0, 0.01, (64, 5))
    assert suspicion(values * 0.5, values).spread_ratio == pytest.approx(0.5)
    mixed = np.concatenate([values, np.full((64, 4), 1.0)], axis=1)
    assert suspicion(mixed * 0.5, mixed).spread_ratio == pytest.approx(0.5)
    assert suspicion(mixed[:, 5:] + np.arange(64)[:, None], mixed[:, 5:]).spread_ratio == float("inf")


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


SPREAD = {str(level): 1.0 for level in (0, 5, 25, 50, 75, 95, 100)}
ORACLE = ScoreParts(0.4, 1.0, 1.0, SPREAD)


def explained(own: ScoreParts, oracle: ScoreParts | None = ORACLE) -> Explanation:
    return explain(own, oracle=oracle, others={})


def test_costs_are_shares_of_the_log_loss() -> None:
    found = explained(ScoreParts(0.1, 0.5, 1.1))
    assert found.log_loss == pytest.approx(np.log(4) + np.log(2))
    assert found.costs == pytest.approx({"forgetting_quality": 2 / 3, "retain_ratio": 1 / 3, "test_ratio": 0.0})


def test_factor_of_nothing_costs_everything() -> None:
    found = explained(ScoreParts(0.0, 0.5, 0.5))
    assert found.costs == {"forgetting_quality": 1.0, "retain_ratio": 0.0, "test_ratio": 0.0}
    assert found.as_json()["log_loss"] is None


def test_differences_are_own_less_the_other_s() -> None:
    own, before = ScoreParts(0.5, 1.0, 0.8), ScoreParts(0.25, 1.0, 1.0)
    found = explain(own, oracle=None, others={"before": before, "none": None})
    assert list(found.differences) == ["before"]
    assert found.differences["before"].score == pytest.approx(0.15)
    assert found.differences["before"].factors["test_ratio"] == pytest.approx(-0.2)
    assert any("against before: score +0.1500" in line for line in found.lines())


@pytest.mark.parametrize("attacks", ["crossfit", "reference"])
def test_parts_give_the_score_that_they_came_from(attacks: str) -> None:
    rng = np.random.default_rng(3)
    better, worse = np.full(32, 0.99), np.full(32, 0.9)
    retrained = ModelOutputs(rng.normal(size=(32, 5)), worse, better)
    unlearned = ModelOutputs(0.5 * retrained.confidences + 1.0, better, worse)  # a ratio above 1, one below
    found = score(unlearned, retrained, attacks=attacks)  # type: ignore[arg-type]
    parts = score_parts(found, unlearned, retrained)
    assert parts is not None
    assert parts.final_score == pytest.approx(found.final_score)
    assert parts.factors["retain_ratio"] == (1.0 if attacks == "crossfit" else pytest.approx(1.1))
    assert parts.spread_ratio == pytest.approx(0.5)
    assert parts.share_above == 1.0
    assert parts.epsilon_percentiles["50"] == pytest.approx(float(np.median(found.epsilon)))
    alone = score(ModelOutputs(unlearned.confidences), ModelOutputs(retrained.confidences))
    assert score_parts(alone, unlearned, retrained) is None


def test_ratios_above_the_largest_cost_and_differ_by_nothing() -> None:
    oracle, own, other = ScoreParts(0.9, 1.05, 1.0), ScoreParts(0.45, 1.0, 1.0), ScoreParts(0.45, 1.2, 1.0)
    found = explain(own, oracle=oracle, others={"other": other})
    assert found.costs == {"forgetting_quality": 1.0, "retain_ratio": 0.0, "test_ratio": 0.0}
    assert (found.differences["other"].score, found.differences["other"].factors["retain_ratio"]) == (0.0, 0.0)
    published = [replace(parts, attacks=AttackFamily.REFERENCE) for parts in (oracle, own, other)]
    found = explain(published[1], oracle=published[0], others={"other": published[2]})
    assert found.costs["retain_ratio"] > 0.0
    assert found.differences["other"].factors["retain_ratio"] == pytest.approx(-0.2)


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"forgetting_quality": 0.5}, "none"),
        ({"forgetting_quality": 0.4, "retain_ratio": 0.9}, "retain"),
        ({"forgetting_quality": 0.4, "test_ratio": 0.9}, "test"),
        ({"spread_ratio": 0.5}, "narrow"),
        ({"spread_ratio": 2.0}, "wide"),
        ({"spread_ratio": 1.0, "share_above": 0.9}, "remembered"),
        ({"spread_ratio": 1.0, "share_above": 0.1}, "over-forgotten"),
        ({"epsilon_percentiles": SPREAD}, "tail"),
        ({"epsilon_percentiles": SPREAD | {"50": 3.0}}, "forgetting"),
        ({}, "forgetting"),
    ],
)
def test_advice_follows_what_costs_most(changed: dict[str, float], rule: str) -> None:
    found = explained(replace(ScoreParts(0.1, 1.0, 1.0), **changed))  # type: ignore[arg-type]
    assert found.rule == rule
    assert found.lines()[-1] == f"advice: {found.advice}"


def test_retrained_models_that_do_not_vary_have_no_spread_ratio() -> None:
    same = ModelOutputs(np.ones((4, 3)))
    assert confidence_ratios(same, same) == {"spread_ratio": None, "share_above": 0.0}
    assert epsilon_percentiles(np.array([0.0, 1.0, 2.0]))["50"] == 1.0
