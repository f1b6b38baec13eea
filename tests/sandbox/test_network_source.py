"""A network that is Python text: it runs under the limits and the filter of a run, never in the zygote."""

from pathlib import Path

import pytest

from sandbox.launcher import Launcher, RunRequest, RunResult, SandboxSpec
from tests.sandbox.conftest import GOOD, NETWORK, TEST_POLICY, write_split, write_submission

pytestmark = pytest.mark.usefixtures("trusted_network_source")
PLAIN = """
from torch import nn

def build(input_shape, n_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, n_classes))
"""
TELLS = """
import os
import __main__

status = open("/proc/self/status").read() if os.path.exists("/submission/submission.py") else "no run"
print("seccomp", [line.split()[1] for line in status.splitlines() if line.startswith("Seccomp:")], os.getpid())
"""
GROWS = """
import os
held = [bytearray(os.urandom(1 << 20)) for _ in range(400)] if os.path.exists("/submission/submission.py") else []
"""


def run_with(folder: Path, source: str) -> RunResult:
    """Run a good submission on a split whose network gained this source after it was made."""
    description = {**NETWORK, "name": "module", "options": {"source": PLAIN + source}}
    data_dir, stage = write_split(folder / "visible", network=description), folder / "stage"
    stage.mkdir()
    code = write_submission(stage, "one", GOOD)
    with Launcher(SandboxSpec(data_dir=data_dir, stage_dir=stage, policy=TEST_POLICY)).start() as sandbox:
        return sandbox.run(RunRequest(code_dir=code, seed=1, kind="sample"))


def test_source_runs_behind_the_filter_of_a_run(tmp_path: Path) -> None:
    result = run_with(tmp_path, TELLS)
    assert result.weights is not None, result
    assert b"seccomp ['2'] 1\n" in result.log


def test_source_has_the_memory_of_a_run(tmp_path: Path) -> None:
    result = run_with(tmp_path, GROWS)
    assert result.weights is None
    assert result.verdict.error_class == "out-of-memory", result
