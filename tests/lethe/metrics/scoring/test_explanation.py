"""What a score is made of: shares of the loss in log terms, differences, and the rule that chooses the advice."""

from dataclasses import replace

import numpy as np
import pytest

from lethe.metrics.scoring.attacks.family import AttackFamily
from lethe.metrics.scoring.explanation import (
    Explanation,
    ScoreParts,
    confidence_ratios,
    epsilon_percentiles,
    explain,
    score_parts,
)
from lethe.metrics.scoring.score import ModelOutputs, score

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
    unlearned = ModelOutputs(rng.normal(size=(32, 5)) + 0.5, better, worse)  # a ratio above 1, one below
    found = score(unlearned, retrained, attacks=attacks)  # type: ignore[arg-type]
    parts = score_parts(found, unlearned, retrained)
    assert parts is not None
    assert parts.final_score == pytest.approx(found.final_score)
    is_capped = attacks == "crossfit"
    assert parts.factors["retain_ratio"] == (1.0 if is_capped else pytest.approx(1.1))


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


def test_parts_of_a_score_are_computed_from_both_sides() -> None:
    draw = np.random.default_rng(0)
    accuracy = np.full(8, 0.9)
    retrained = ModelOutputs(draw.normal(0.0, 1.0, (8, 30)), accuracy, accuracy)
    unlearned = ModelOutputs(0.5 * retrained.confidences + 1.0, accuracy, accuracy)
    found = score(unlearned, retrained)
    parts = score_parts(found, unlearned, retrained)
    assert parts is not None
    assert parts.final_score == pytest.approx(found.headline)
    assert parts.spread_ratio == pytest.approx(0.5)
    assert parts.share_above == 1.0
    assert parts.epsilon_percentiles["50"] == pytest.approx(float(np.median(found.epsilon)))
    assert (
        score_parts(
            score(ModelOutputs(unlearned.confidences), ModelOutputs(retrained.confidences)), unlearned, retrained
        )
        is None
    )


def test_retrained_models_that_do_not_vary_have_no_spread_ratio() -> None:
    same = ModelOutputs(np.ones((4, 3)))
    assert confidence_ratios(same, same) == {"spread_ratio": None, "share_above": 0.0}
    assert epsilon_percentiles(np.array([0.0, 1.0, 2.0]))["50"] == 1.0
