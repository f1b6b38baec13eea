"""The wheel: the package `lethe` alone, and what works with it in a folder outside the checkout."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of what it is made of."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("lethe", "server", "worker", "sandbox"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "static"))
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(out), "."]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    return next(out.glob("lethe_unlearning-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(wheel.parent / "site")
    return wheel.parent / "site"


def run(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    folder = site.parent / "elsewhere"
    folder.mkdir(exist_ok=True)
    environment = os.environ | {"PYTHONPATH": str(site), "COLUMNS": "100", "XDG_CONFIG_HOME": str(site.parent)}
    environment["NUMBA_DISABLE_JIT"] = "1"  # a new place has no compiled attacks yet, which takes seconds
    command = [sys.executable, "-P", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def lethe(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run(site, "-m", "lethe.cli.main", *words)


def test_wheel_holds_the_library_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        folders = {name.split("/")[0] for name in archive.namelist()}
        metadata = next(archive.read(name).decode() for name in archive.namelist() if name.endswith("METADATA"))
    assert {folder for folder in folders if "dist-info" not in folder} == {"lethe"}
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line]
    heavy = ("torch", "celery", "fastapi", "sqlalchemy", "redis", "uvicorn", "alembic")
    assert [line for line in needed if any(f" {name}" in line for name in heavy)] == []


def test_wheel_has_no_operator_commands_nor_those_of_the_current_folder(installed: Path, wheel: Path) -> None:
    folder = installed.parent / "elsewhere"
    (folder / "server" / "cli").mkdir(parents=True)
    (folder / "server" / "cli" / "commands.py").write_text("raise SystemExit('ran a stranger')")
    (folder / "server.py").write_text("raise SystemExit('ran a stranger')")
    answer = lethe(installed, "--help")
    assert answer.returncode == 0, answer.stderr
    shown = {name: f" {name} " in answer.stdout for name in ("submit", "check", "demo", "doctor")}
    assert shown == {"submit": True, "check": True, "demo": False, "doctor": False}
    assert lethe(installed, "--version").stdout.strip() == f"lethe {wheel.name.split('-')[1]}"


def test_score_needs_no_server(installed: Path) -> None:
    random = np.random.default_rng(0)
    for name in ("u", "r"):
        np.savez(installed.parent / f"{name}.npz", confidences=random.normal(size=(16, 5)))
    files = [str(installed.parent / f"{name}.npz") for name in ("u", "r")]
    answer = lethe(installed, "score", "--unlearned", files[0], "--retrained", files[1], "--json")
    assert answer.returncode == 0, answer.stderr
    assert 0 <= json.loads(answer.stdout)["forgetting_quality"] <= 1


def test_missing_extra_is_named(installed: Path) -> None:
    missing = "raise ModuleNotFoundError('No module named torch', name='torch')"
    (installed / "torch.py").write_text(missing)
    (installed / "safetensors.py").write_text(missing.replace("torch", "safetensors"))
    (installed.parent / "entry.py").write_text("def unlearning(net, retain, forget, val): pass")
    answer = lethe(installed, "check", str(installed.parent / "entry.py"), "--kit", str(installed.parent))
    assert answer.returncode == 1
    assert "install lethe-unlearning[torch]" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_import_reaches_no_torch(installed: Path) -> None:
    code = (
        "import sys, lethe.metrics, lethe.competition, lethe.client.api, lethe.loggers, lethe.reports.published_page\n"
        "lethe.BenchmarkResult\n"
        "print('torch' in sys.modules, 'matplotlib' in sys.modules, lethe.__file__)"
    )
    answer = run(installed, "-c", code)
    assert answer.stdout.split() == ["False", "False", str(installed / "lethe" / "__init__.py")]
