"""The gVisor back-end: the same weights from another kernel, behind the same filter, ended when its time is up."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.launcher import Launcher, RunRequest, Sandbox, SandboxSpec

from .conftest import GOOD, TEST_POLICY, write_submission

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("runsc") is None or os.geteuid() != 0,
        reason="gVisor needs runsc (apt-get install runsc) and root",
    ),
]

LOOP_BEHIND_THE_FILTER = """
import os

def unlearning(*_):
    try:
        os.memfd_create("open")
    except OSError:
        while True:
            pass
"""


def test_gvisor_gives_the_bits_of_bubblewrap_and_ends_a_loop(split: Path, stage: Path, sandbox: Sandbox) -> None:
    good = RunRequest(code_dir=write_submission(stage, "good", GOOD), seed=5)
    loop = RunRequest(code_dir=write_submission(stage, "loop", LOOP_BEHIND_THE_FILTER))
    policy = replace(TEST_POLICY, wall_time_s=8, cpu_time_s=3)
    with Launcher(SandboxSpec(data_dir=split, stage_dir=stage, policy=policy, backend="runsc")).start() as gvisor:
        assert gvisor.run(loop).verdict.error_class in {"time-limit", "timeout"}
        result = gvisor.run(good)
    assert result.weights == sandbox.run(good).weights is not None, result.facts.host_error
