"""A policy keeps only limits that can be kept, and survives JSON."""

import json
from typing import Any

import pytest

from sandbox.policy import InvalidPolicy, Isolation, Mount, RunPolicy


def test_policy_round_trips_through_json() -> None:
    policy = RunPolicy(
        cpus=(0, 1),
        mounts=(Mount("/usr/share/x", "/opt/x"),),
        isolation=Isolation.SHARD,
        device="cuda",
        devices=("/dev/x",),
    )
    assert RunPolicy.from_dict(json.loads(json.dumps(policy.to_dict()))) == policy


@pytest.mark.parametrize(
    "values",
    [
        {"wall_time_s": 0},
        {"wall_time_s": float("nan")},
        {"wall_time_s": True},
        {"idle_time_s": -1},
        {"memory_mib": 1},
        {"memory_mib": 99.5},
        {"processes": 0},
        {"cpus": [-1]},
        {"isolation": "none"},
        {"mounts": [{"source": "/etc", "target": "/data/etc"}]},
        {"mounts": [{"source": "/etc", "target": "relative"}]},
        {"mounts": [{"source": "/etc", "target": "/opt/../data"}]},
        {"unknown": 1},
    ],
)
def test_impossible_value_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidPolicy):
        RunPolicy.from_dict(values)


def test_unknown_limit_is_named_with_the_known_ones() -> None:
    with pytest.raises(InvalidPolicy, match=r"'wall'; known are .*wall_time_s"):
        RunPolicy.from_dict({"wall": 3})
