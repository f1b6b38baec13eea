"""scripts/find-python: which Pythons it takes, and what it says where there is none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "find-python"


def find_python(**environment: str) -> subprocess.CompletedProcess[str]:
    outside = {name: value for name, value in os.environ.items() if name != "PYTHON"}
    return subprocess.run([SCRIPT], env=outside | environment, capture_output=True, text=True, check=False)


def python_that_says(version: tuple[int, int], folder: Path) -> str:
    """Return a program that runs Python code as if its version were `version`."""
    program = folder / "python3"
    pretend = f"import sys; sys.version_info = ({version[0]}, {version[1]}, 0); exec(sys.argv[1])"
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{pretend}' \"$2\"\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize("minor", [11, 12, 13, 14])
def test_supported_python_is_taken(minor: int, tmp_path: Path) -> None:
    program = python_that_says((3, minor), tmp_path)
    found = find_python(PYTHON=program)
    assert (found.returncode, found.stdout) == (0, program + "\n")


@pytest.mark.parametrize("minor", [10, 15])
def test_other_python_is_refused(minor: int, tmp_path: Path) -> None:
    program = python_that_says((3, minor), tmp_path)
    found = find_python(PYTHON=program)
    assert (found.returncode, found.stdout) == (1, "")
    assert program in found.stderr
    assert "3.11, 3.12, 3.13 or 3.14" in found.stderr


def test_python3_on_path_is_tried_first(tmp_path: Path) -> None:
    python_that_says((3, 14), tmp_path)
    assert find_python(PATH=f"{tmp_path}:{os.environ['PATH']}").stdout == "python3\n"


def test_machine_without_python_is_told_what_to_install(tmp_path: Path) -> None:
    found = find_python(PATH=str(tmp_path))
    assert found.returncode == 1
    assert "make install PYTHON=" in found.stderr
