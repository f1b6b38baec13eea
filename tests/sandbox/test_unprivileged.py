"""The same boundary without root: no control group, no slot, and every attack still ends as it must."""

import os
import subprocess
import sys

import pytest

from .conftest import WHOLE_SUITE
from .hostile_suite import SAMPLE

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="not root: the whole suite runs unprivileged already")


def run_as_other_user(*arguments: str) -> None:
    command = [sys.executable, "-m", "tests.sandbox.as_other_user", "pytest", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_attacks_of_each_kind_end_as_they_must() -> None:
    run_as_other_user("tests/sandbox/test_hostile.py", "-k", f"{' or '.join(SAMPLE)} or good")


@pytest.mark.slow
@pytest.mark.skipif(not WHOLE_SUITE, reason="minutes: ask with LETHE_TEST_WHOLE_SUITE=1")
def test_every_attack_ends_as_it_must_and_runs_are_isolated() -> None:
    run_as_other_user(
        "tests/sandbox/test_hostile.py", "tests/sandbox/test_isolation.py", "tests/sandbox/test_visibility.py"
    )
