"""How long one run may take: the smallest limit that applies."""

import pytest

from lethe.competition.file import Limits
from lethe.competition.run_limits import limit_warnings, run_wall_time_s


@pytest.mark.parametrize(
    ("limits", "retraining_time_s", "expected"),
    [
        ({"run_wall_time_s": 2.0}, 100.0, 2.0),
        ({"run_wall_time_s": 2.0}, 0.0, 2.0),
        ({}, 100.0, 20.0),
        ({}, 1.0, 5.0),
        ({"wall_time_s": 3.0}, 1.0, 3.0),
        ({"run_fraction_of_retraining": None, "wall_time_s": 60.0}, 100.0, 60.0),
    ],
    ids=["seconds below the floor", "unknown retraining", "share", "floor of the share", "all runs", "no share"],
)
def test_run_wall_time_is_the_smallest_limit(
    limits: dict[str, float | None], retraining_time_s: float, expected: float
) -> None:
    assert run_wall_time_s(Limits.model_validate(limits), retraining_time_s=retraining_time_s) == expected


@pytest.mark.parametrize(
    ("limits", "retraining_time_s", "said"),
    [
        ({}, 0.16, "fits into a run's limit: it takes 0.16 s, a run may take 5 s"),
        ({"run_fraction_of_retraining": 1.0}, 100.0, "fits into a run's limit"),
        ({"run_fraction_of_retraining": None}, 0.0, "run_fraction_of_retraining is not set"),
    ],
    ids=["floor", "whole retraining", "no share"],
)
def test_limit_that_leaves_time_to_retrain_is_warned_of(
    limits: dict[str, float | None], retraining_time_s: float, said: str
) -> None:
    (warning,) = limit_warnings(Limits.model_validate(limits), retraining_time_s=retraining_time_s)
    assert said in warning


@pytest.mark.parametrize("retraining_time_s", [0.0, 5.1, 100.0])
def test_limit_below_retraining_is_not_warned_of(retraining_time_s: float) -> None:
    assert limit_warnings(Limits(), retraining_time_s=retraining_time_s) == []
