"""How long one run may take: the smallest limit that applies."""

import pytest

from lethe.competition.run_limits import RetrainingCost, limit_warnings, run_limit
from lethe.competition.sections import Limits

MEASURED = RetrainingCost(time_s=3.0, cpu_s=2.0, start_cpu_s=0.02)


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
def test_clock_limits_a_run_without_measured_processor_time(limits, retraining_time_s, expected):
    found = run_limit(Limits.model_validate(limits), RetrainingCost(retraining_time_s))
    assert (found.wall_time_s, found.cpu_time_s) == (expected, None)


@pytest.mark.parametrize(
    ("limits", "cpu_time_s", "wall_time_s"),
    [
        ({"run_start_time_s": 0.1}, 0.02 + 0.1 + 0.2 * 2.0, 5.2),
        ({"run_start_time_s": 0.0, "run_wall_time_floor_s": 30.0}, 0.02 + 0.2 * 2.0, 30.0),
        ({"run_start_time_s": 0.0, "run_cpu_time_s": 0.3}, 0.02 + 0.3, 5.0),
        ({"run_start_time_s": 0.0, "run_cpu_time_s": 9.0}, 0.02 + 0.2 * 2.0, 5.0),
        ({"run_start_time_s": 0.0, "run_wall_time_s": 2.0}, 0.02 + 0.2 * 2.0, 2.0),
        ({"run_fraction_of_retraining": None, "run_wall_time_s": 2.0}, None, 2.0),
    ],
    ids=["share and start", "clock's floor", "seconds below", "seconds above", "clock in seconds", "no share"],
)
def test_processor_time_is_the_share_and_the_start(limits, cpu_time_s, wall_time_s):
    found = run_limit(Limits.model_validate(limits), MEASURED)
    assert found.cpu_time_s == pytest.approx(cpu_time_s)
    assert found.wall_time_s == pytest.approx(wall_time_s)


@pytest.mark.parametrize(
    ("limits", "cost", "said"),
    [
        ({}, RetrainingCost(0.16), "fits into a run's limit: it takes 0.16 s, a run may take 5 s"),
        (
            {},
            RetrainingCost(9.0, cpu_s=0.5),
            "it takes 0.5 s of the processor in its fastest form, a run may take 1.1 s",
        ),
        ({"run_fraction_of_retraining": 1.0}, RetrainingCost(100.0), "fits into a run's limit"),
        ({}, RetrainingCost(9.0, cpu_s=0.5), "Lower [limits] run_start_time_s (now 1)"),
        ({"run_start_time_s": 0.02}, RetrainingCost(0.5, cpu_s=0.015), "so small that no limit binds"),
        ({"run_fraction_of_retraining": 1.0}, MEASURED, "fits into a run's limit"),
        ({"run_fraction_of_retraining": None}, RetrainingCost(), "run_fraction_of_retraining is not set"),
    ],
    ids=[
        "floor",
        "start",
        "advice",
        "too small a network",
        "whole retraining",
        "whole retraining, measured",
        "no share",
    ],
)
def test_limit_that_leaves_time_to_retrain_is_warned_of(limits, cost, said):
    (warning,) = limit_warnings(Limits.model_validate(limits), cost, n_models=1)
    assert said in warning


@pytest.mark.parametrize(
    "cost", [RetrainingCost(), RetrainingCost(5.1), RetrainingCost(100.0), RetrainingCost(0.2, cpu_s=1.3), MEASURED]
)
def test_limit_below_retraining_is_not_warned_of(cost: RetrainingCost) -> None:
    assert limit_warnings(Limits(), cost, n_models=1) == []


@pytest.mark.parametrize(("n_models", "n_warnings"), [(1, 0), (8, 1)])
def test_too_little_time_for_all_runs_is_warned_of(n_models: int, n_warnings: int) -> None:
    found = limit_warnings(Limits(wall_time_s=1.0, run_start_time_s=0.1), MEASURED, n_models=n_models)
    assert len(found) == n_warnings
    assert all("all 8 runs together have 1 s" in each for each in found)
