"""A policy keeps only limits that can be kept, and is plain JSON."""

import json
from typing import Any

import pytest

from sandbox.policy import InvalidPolicy, Isolation, Mount, RunPolicy


def test_policy_is_plain_json() -> None:
    policy = RunPolicy(
        cpus=(0, 1),
        mounts=(Mount("/usr/share/x", "/opt/x"),),
        isolation=Isolation.SHARD,
        device="cuda",
        devices=("/dev/x",),
    )
    values = json.loads(json.dumps(policy.to_dict()))
    assert values["mounts"] == [{"source": "/usr/share/x", "target": "/opt/x"}]
    assert (values["cpus"], values["devices"], values["isolation"]) == ([0, 1], ["/dev/x"], "shard")
    assert set(values) == set(vars(policy))


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
        {"cpus": (-1,)},
        {"mounts": (Mount("/etc", "/data/etc"),)},
        {"mounts": (Mount("/etc", "relative"),)},
        {"mounts": (Mount("/etc", "/opt/../data"),)},
    ],
)
def test_impossible_value_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidPolicy):
        RunPolicy(**values)
