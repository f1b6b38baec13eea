"""scripts/run-tests: what it asks pytest for, and what it says before and after."""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "run-tests"


def started(folder: Path, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the script beside a `python` that shows a line for each of its words and ends with a status."""
    (folder / "scripts").mkdir()
    shutil.copy(SCRIPT, folder / "scripts")
    python = folder / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nfor word in "$@"; do echo "<$word>"; done\nexit {status}\n', encoding="utf-8")
    python.chmod(0o755)
    command = [folder / "scripts" / "run-tests", "3", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_alone_it_leaves_out_what_is_slow_and_says_how_to_run_that(tmp_path: Path) -> None:
    said = started(tmp_path).stdout
    assert said.startswith("All tests but the slow ones, in 3 processes: about ")
    assert "`make test ARGS=tests` runs the slow ones too" in said
    assert said.endswith("<-m>\n<not slow>\n")


@pytest.mark.parametrize("words", [["tests"], ["--ignore=tests/lethe/metrics", "--ignore=tests/lethe/reports"]])
def test_whole_it_leaves_out_nothing(words: list[str], tmp_path: Path) -> None:
    said = started(tmp_path, *words).stdout
    assert said.startswith("Every test, in 5 processes: about ")
    assert said.endswith("".join(f"<{word}>\n" for word in ["--no-loadscope-reorder", *words]))


@pytest.mark.parametrize("words", [["tests/faults", "-k", "a or b"], ["--last-failed"], ["-m", "slow"]])
def test_asked_for_some_it_runs_these_and_the_slow_ones_of_them(words: list[str], tmp_path: Path) -> None:
    said = started(tmp_path, *words).stdout
    assert said.startswith("Of the tests: ")
    assert said.endswith("".join(f"<{word}>\n" for word in ["--no-loadscope-reorder", *words]))


def test_failure_ends_with_the_command_that_repeats_it(tmp_path: Path) -> None:
    ended = started(tmp_path, status=1)
    assert ended.returncode == 1
    assert ended.stdout.endswith("make test ARGS=--last-failed\n")


def test_nothing_is_repeated_where_no_test_failed(tmp_path: Path) -> None:
    ended = started(tmp_path, status=2)  # interrupted, or a wrong option
    assert ended.returncode == 2
    assert "--last-failed" not in ended.stdout
