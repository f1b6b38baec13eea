"""[report]: which metrics a competition may ask for."""

import pytest
from pydantic import ValidationError

from lethe.competition.file import RunRules
from tests.lethe.conftest import competition


def refusal(**report: object) -> str:
    with pytest.raises(ValidationError) as caught:
        competition(report=report)
    return str(caught.value)


def test_levels_are_those_that_the_metrics_need() -> None:
    assert competition().report.capture_levels == ()
    assert competition(report={"metrics": ["retdev"]}).report.capture_levels == (1,)
    asked = competition(report={"metrics": ["targeted_error", {"id": "klom", "bins": 10}]})
    assert 3 in asked.report.capture_levels
    assert asked.report.metrics[1].parameters == {"bins": 10}


def test_given_level_includes_those_below() -> None:
    assert competition(report={"capture": 2}).report.capture_levels == (1, 2)


FOUR = ["klom", "retdev", "umia", "accuracy_gap"]


@pytest.mark.parametrize(
    ("report", "said"),
    [
        ({"metrics": ["klomm"]}, "klom"),
        ({"metrics": [{"id": "klom", "colour": 3}]}, "colour"),
        ({"metrics": ["hardness"]}, "several submissions"),
        ({"metrics": ["klom"], "columns": ["umia"]}, "columns: 'umia' is not among the metrics"),
        ({"metrics": ["klom", {"id": "klom", "bins": 10}], "columns": ["klom"]}, "several parameters"),
        ({"metrics": ["klom"], "columns": ["klom", "klom"]}, "columns names 'klom' twice"),
        ({"metrics": FOUR, "columns": FOUR}, "at most 3"),
    ],
)
def test_report_that_cannot_be_is_refused(report, said):
    assert said in refusal(**report)


def test_score_is_refused_and_its_first_factor_is_not() -> None:
    assert "needs no entry" in refusal(metrics=["score"])
    assert competition(report={"metrics": [{"id": "f", "attacks": "exact"}]}).report.capture_levels == ()


@pytest.mark.parametrize("name", ["relearn_time", "residual_knowledge", "weight_distance"])
def test_metric_that_needs_a_probe_needs_kept_weights(name: str) -> None:
    found = refusal(metrics=["klom", name])
    assert f"{name} needs weights of runs (level 4), and keep_weights is 0: set it to how many runs" in found
    report = competition(report={"metrics": ["klom", name], "keep_weights": 2}).report
    assert report.capture_levels == (), "evaluations store no more than before"


def test_weights_are_kept_of_at_most_eight_runs() -> None:
    assert competition(report={"keep_weights": 8}).report.metrics == ()
    assert "less than or equal to 8" in refusal(keep_weights=9)
    assert "greater than or equal to 0" in refusal(keep_weights=-1)


def test_worker_is_told_of_how_many_runs_weights_are_kept() -> None:
    assert RunRules.of(competition(report={"keep_weights": 3})).keep_weights == 3
    assert RunRules.of(competition()).keep_weights == 0
