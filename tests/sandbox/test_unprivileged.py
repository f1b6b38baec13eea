"""The same boundary without root: no control group, no slot, and every attack still ends as it must.

A worker that has to have control groups takes no shard then (tests/worker/host/test_sandbox_requirements.py): its tests
run in the same process of the other user, which takes seconds to start.
"""

import os
import subprocess
import sys

import pytest

from .hostile_suite import SAMPLE

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="not root: the whole suite runs unprivileged already")


# Those that show nothing more as another user, and would start sandboxes.
NOT_AGAIN = ("test_controls_and_every_limit_are_stored_with_the_attempt",)


def run_as_other_user(*arguments: str) -> str:
    command = [sys.executable, "-m", "tests.sandbox.as_other_user", "pytest", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_attacks_end_as_they_must_and_a_strict_worker_refuses() -> None:
    files = ("tests/sandbox/test_hostile.py", "tests/worker/host/test_sandbox_requirements.py")
    wanted = f"{' or '.join(SAMPLE)} or good or test_sandbox_requirements"
    said = run_as_other_user(*files, "-rA", "-k", f"({wanted}) and not ({' or '.join(NOT_AGAIN)})")
    passed = [line for line in said.splitlines() if line.startswith("PASSED")]
    assert len([line for line in passed if files[0] in line]) >= len(SAMPLE)
    assert any("test_worker_claims_nothing_and_tells_organisers_why" in line for line in passed)
    assert "this user may make control groups" not in said
