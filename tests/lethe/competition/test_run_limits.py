"""How long one run may take: the smallest limit that applies."""

import pytest

from lethe.competition.file import Limits
from lethe.competition.run_limits import run_wall_time_s


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
