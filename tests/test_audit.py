"""The audit of what is installed: a hole fails, and a service that cannot be asked is said and fails nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "audit.py"
CLEAN = {"name": "numpy", "version": "2.0.0", "vulns": []}
HOLE = {"name": "jinja2", "version": "2.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3.0"], "aliases": []}]}
UNKNOWN = {"name": "torch", "skip_reason": "Dependency not found on PyPI"}


def audited(folder: Path, *answers: str) -> subprocess.CompletedProcess[str]:
    """Run the script with a pip-audit that gives these answers, one after the other."""
    program = folder / "pip-audit"
    for number, answer in enumerate(answers):
        (folder / str(number)).write_text(answer)
    program.write_text(
        f"#!/bin/sh\ncd {folder}\nn=$(ls asked-* 2>/dev/null | wc -l)\ntouch asked-$n\n"
        "cat $n\ncase $(cat $n) in '') echo 'could not connect' >&2; exit 1;; esac\n"
    )
    program.chmod(0o755)
    lock = folder / "requirements.lock"
    lock.write_text("numpy==2.0.0\n")
    command = [sys.executable, str(SCRIPT), str(lock), "--program", str(program)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def answer(*dependencies: dict[str, object]) -> str:
    return json.dumps({"dependencies": dependencies, "fixes": []})


def test_known_hole_fails_and_is_named_with_its_remedy(tmp_path: Path) -> None:
    done = audited(tmp_path, answer(CLEAN), answer(CLEAN, HOLE))
    assert done.returncode == 1
    assert "jinja2 2.0 has PYSEC-1, fixed in 3.0" in done.stderr


def test_clean_answer_passes(tmp_path: Path) -> None:
    done = audited(tmp_path, answer(CLEAN), answer(CLEAN, CLEAN, UNKNOWN))
    assert done.returncode == 0
    assert "no known hole" in done.stdout


@pytest.mark.parametrize("first", ["", answer(UNKNOWN)], ids=["no network", "a mirror without advisories"])
def test_service_that_cannot_be_asked_is_said_and_fails_nothing(tmp_path: Path, first: str) -> None:
    done = audited(tmp_path, first, answer(HOLE))
    assert done.returncode == 0
    assert "could not be asked" in done.stdout
    assert "no known hole" not in done.stdout


def test_service_that_falls_silent_halfway_is_not_a_clean_bill(tmp_path: Path) -> None:
    done = audited(tmp_path, answer(CLEAN), answer(CLEAN, UNKNOWN, UNKNOWN))
    assert done.returncode == 0
    assert "it knows 1 of 3 packages" in done.stdout
