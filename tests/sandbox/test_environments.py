"""What a sandbox starts with: sets of older libraries, a network as Python text, a template that ends."""

import socket
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest

from lethe.submission.libraries import LIBRARIES, OLDER_SETS, PYTHON_OF_SETS
from sandbox import doctor, environments
from sandbox.backends.templates import Template
from sandbox.environments import find_environment, find_python, installed_libraries, known_sets, missing_set
from sandbox.errors import BackendUnavailable, ZygoteFailed
from sandbox.launcher import Launcher, RunRequest, RunResult, SandboxSpec
from sandbox.policy import RunPolicy
from sandbox.uid_slots import Slot
from tests.sandbox.conftest import GOOD, NETWORK, TEST_POLICY, write_split, write_submission
from tests.support.library_sets import write_set


def test_sets_are_those_of_the_competition_file() -> None:
    assert known_sets() == tuple(OLDER_SETS) == ("2023",)
    assert OLDER_SETS["2023"]["torch"] == "2.1.2"
    assert OLDER_SETS["2023"]["numpy"].startswith("1.")
    assert PYTHON_OF_SETS == environments.PYTHON


def test_a_set_is_missing_until_it_is_installed_from_todays_lock(tmp_path: Path) -> None:
    assert "not installed here: `lethe libraries install 2023`" in missing_set("2023", tmp_path)
    assert missing_set("2022", tmp_path) == "there is no set of libraries called '2022'; there are 2023"
    assert "from another lock file" in missing_set("2023", write_set(tmp_path / "old", lock="0"))
    assert missing_set("2023", write_set(tmp_path / "new")) == ""


def test_a_python_of_another_version_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho Python 3.9.1\n")
    other.chmod(0o755)
    with pytest.raises(BackendUnavailable, match=r"is Python 3\.9\.1; these libraries need Python 3\.11"):
        find_python(str(other))
    with pytest.raises(BackendUnavailable, match="is not found; name a Python"):
        find_python(str(tmp_path / "none"))


def test_a_sandbox_does_not_start_without_the_set_that_it_is_asked_for(split: Path, tmp_path: Path) -> None:
    stage = tmp_path / "stage"
    stage.mkdir()
    spec = SandboxSpec(data_dir=split, stage_dir=stage, policy=RunPolicy(libraries="2023"), library_sets=tmp_path)
    with pytest.raises(BackendUnavailable, match="lethe libraries install 2023"):
        Launcher(spec).start()
    with pytest.raises(BackendUnavailable, match="no older ones"):
        Launcher(replace(spec, backend="plain", production=False, library_sets=write_set(tmp_path / "sets"))).start()


def test_a_sandbox_shows_the_set_and_says_which_versions_it_has(tmp_path: Path) -> None:
    found = doctor.examine(policy=RunPolicy(libraries="2023"), library_sets=write_set(tmp_path / "sets"))
    assert not found.problems
    assert found.controls["libraries"]["torch"] == "2.1.2"
    assert found.controls["policy"]["libraries"] == "2023"
    empty = tmp_path / "empty"
    empty.mkdir()
    broken = doctor.examine(policy=RunPolicy(libraries="2023"), library_sets=write_set(tmp_path / "no", site=empty))
    assert "No module named 'numpy'" in " ".join(broken.problems)


def test_libraries_named_in_messages_are_those_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").touch()
    assert installed_libraries(tmp_path) == ("torch",)
    assert find_environment("", None).site.joinpath("torch").is_dir()
    here = installed_libraries(find_environment("", None).site)
    assert {"torch", "pandas", "transformers", "opencv-python-headless"} <= set(here) <= set(LIBRARIES)


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


@pytest.mark.usefixtures("trusted_network_source")
def test_source_runs_behind_the_filter_of_a_run(tmp_path: Path) -> None:
    result = run_with(tmp_path, TELLS)
    assert result.weights is not None, result
    assert b"seccomp ['2'] 1\n" in result.log


@pytest.mark.usefixtures("trusted_network_source")
def test_source_has_the_memory_of_a_run(tmp_path: Path) -> None:
    result = run_with(tmp_path, GROWS)
    assert result.weights is None
    assert result.verdict.error_class == "out-of-memory", result


def end_at_once(_slot: Slot | None, _control: socket.socket, diagnostics: IO[bytes]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(["/bin/sh", "-c", "echo no namespaces here >&2; exit 3"], stderr=diagnostics)
    process.wait()
    return process


def test_template_that_ends_at_once_is_quoted() -> None:
    with pytest.raises(ZygoteFailed, match="ended with 3: no namespaces here"):
        Template(end_at_once, key="ends", slot=None)
