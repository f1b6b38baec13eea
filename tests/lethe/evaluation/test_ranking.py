"""One number that ranks: each value from the original model (0) to exact retraining (1), then combined."""

import math
from typing import Any

import pytest

from lethe.competition.sections import SCORE, Ranking
from lethe.evaluation.ranking import RankedValue, ranking_value
from lethe.metrics import InvalidMetricInput
from lethe.metrics.core.registry import Direction

UP = RankedValue(0.3, oracle=0.5, original=0.1, interval=(0.2, 0.4))
DOWN = RankedValue(0.8, oracle=0.5, original=0.9, interval=(0.7, 0.95), direction=Direction.LOWER)
AIM = RankedValue(0.6, oracle=0.7, original=0.9, interval=(0.55, 0.75), direction=Direction.TOWARDS_RETRAINED)
WHOLE = {"retain_ratio": 1.0, "test_ratio": 1.0}


def of_score(value: float, oracle: float = 0.2) -> RankedValue:
    return RankedValue(value, oracle=oracle, original=0.0, interval=(value - 0.01, value + 0.01))


def rank(ratios: dict[str, float] = WHOLE, /, **section: Any) -> Any:
    values = {SCORE: of_score(0.05), "up": UP, "down": DOWN, "aim": AIM}
    return ranking_value(Ranking.model_validate(section), values, ratios=ratios)


def test_score_ranks_by_itself() -> None:
    found = rank()
    assert (found.value, found.interval) == (0.05, (0.05 - 0.01, 0.05 + 0.01))


@pytest.mark.parametrize(("by", "value", "interval"), [
    ("up", 0.5, (0.25, 0.75)),
    ("down", 0.25, (0.0, 0.5)),
    ("aim", 0.5, (0.25, 1.0)),
])  # fmt: skip
def test_metric_ranks_by_its_way_to_exact_retraining(by: str, value: float, interval: tuple[float, float]) -> None:
    found = rank(by=by)
    assert found.value == pytest.approx(value)
    assert found.interval == pytest.approx(interval)


@pytest.mark.parametrize(("combine", "value"), [
    ("mean", (0.25 + 0.5 + 0.25) / 3),
    ("harmonic-mean", 3 / (1 / 0.25 + 1 / 0.5 + 1 / 0.25)),
    ("worst", 0.25),
])  # fmt: skip
def test_several_values_are_combined_on_one_scale(combine: str, value: float) -> None:
    found = rank(by=["score", "up", "down"], combine=combine)
    assert found.positions == pytest.approx({"score": 0.25, "up": 0.5, "down": 0.25})
    assert found.value == pytest.approx(value)
    low, high = found.interval
    assert low <= found.value <= high


def test_gate_makes_the_value_zero_and_says_which() -> None:
    low = {"retain_ratio": 0.89, "test_ratio": 1.0}
    assert rank(low, by="up", min_retain_ratio=0.9, min_test_ratio=0.9).failed_gates == ("retain_ratio",)
    assert rank(low, min_retain_ratio=0.9).value == 0.0
    assert rank(low, min_retain_ratio=0.89).value == 0.05


@pytest.mark.parametrize(("value", "position"), [(-9.0, 0.0), (9.0, 1.0)])
def test_value_beyond_a_reference_counts_as_it(value: float, position: float) -> None:
    assert RankedValue(value, oracle=0.5, original=0.1).position(value) == position


def test_value_that_was_not_computed_ranks_as_the_original() -> None:
    values = {SCORE: of_score(0.1), "gone": RankedValue(None, 1.0, 0.0)}
    found = ranking_value(Ranking(by=("score", "gone"), combine="harmonic-mean"), values, ratios=WHOLE)
    assert (found.value, found.interval) == (0.0, None)


@pytest.mark.parametrize("value", [
    RankedValue(0.3, oracle=0.5, original=0.5),
    RankedValue(0.3, oracle=0.5, original=0.6, direction=Direction.HIGHER),
    RankedValue(0.3, oracle=0.6, original=0.5, direction=Direction.LOWER),
    RankedValue(0.3, oracle=math.nan, original=0.5),
])  # fmt: skip
def test_metric_by_which_retraining_is_not_better_cannot_rank(value: RankedValue) -> None:
    with pytest.raises(InvalidMetricInput, match=r"exact retraining .* is not better than the original model .* by m"):
        ranking_value(Ranking(by=("m",)), {"m": value}, ratios=WHOLE)


@pytest.mark.parametrize(("audit", "failed"), [(0.6, ()), (0.61, ("joint_audit",)), (None, ("joint_audit",))])
def test_joint_audit_is_a_gate(audit: float | None, failed: tuple[str, ...]) -> None:
    ranking = Ranking(max_joint_audit=0.6)
    found = ranking_value(ranking, {SCORE: of_score(0.05)}, ratios=WHOLE, joint_audit=audit)
    assert found.failed_gates == failed
    assert found.value == (0.0 if failed else 0.05)
