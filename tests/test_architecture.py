"""The import rule, and the promises that no single module can keep: each check is shown to bite."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from server.config import Settings

ROOT = Path(__file__).parents[1]
ROOMS = ("server", "worker", "sandbox")
PACKAGES = (*ROOMS, "migrations", "tests", "benchmarks")
VARIABLE = re.compile(r"\bLETHE_[A-Z0-9_]+\b")
SETTINGS_PAGE = ROOT / "docs" / "settings.md"


def lint_imports(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = "import sys; from importlinter.cli import lint_imports_command; lint_imports_command()"
    return subprocess.run(
        [sys.executable, "-c", command, "--no-logo", "--no-cache", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copied_rooms(tmp_path: Path) -> Path:
    """A copy of the code under the import rule, to break."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name in (*ROOMS, "tests/support"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "static"))
    (tmp_path / "tests" / "__init__.py").touch()
    return tmp_path


def test_import_rule_holds() -> None:
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("contract", "module", "line"),
    [
        ("server", "server/errors.py", "import worker.scoring"),
        ("server", "server/errors.py", "import sandbox.policy"),
        ("server", "server/cli/main.py", "def f():\n    import torch"),
        ("routers", "server/accounts/router.py", "import server.accounts.repository"),
        ("routers", "server/competitions/router.py", "from server.accounts import repository"),
        ("routers", "server/web/rendering.py", "import server.submissions.repository"),
        ("sandbox", "sandbox/policy.py", "import torch"),
        ("sandbox", "sandbox/policy.py", "import server.errors"),
        ("sandbox", "sandbox/policy.py", "import worker"),
        ("sandbox", "sandbox/policy.py", "import sandbox.guest.networks"),
        ("sandbox", "sandbox/backends/base.py", "import pydantic"),
        ("guest", "sandbox/guest/loaders.py", "import sandbox.policy"),
        ("guest", "sandbox/guest/loaders.py", "import server.config"),
        ("guest", "sandbox/guest/loaders.py", "import safetensors"),
        ("scoring", "worker/scoring/final.py", "import torch"),
        ("scoring", "worker/scoring/final.py", "import worker.splits"),
        ("scoring", "worker/scoring/final.py", "import server.errors"),
        ("scoring", "worker/scoring/final.py", "import sqlalchemy"),
    ],
)
def test_forbidden_import_is_found(copied_rooms: Path, contract: str, module: str, line: str) -> None:
    with (copied_rooms / module).open("a") as source:
        source.write(f"\n{line}\n")
    result = lint_imports(copied_rooms, "--contract", contract)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "BROKEN" in result.stdout
    assert module.removesuffix(".py").replace("/", ".") in result.stdout


def test_init_files_are_empty() -> None:
    files = [path for name in PACKAGES for path in (ROOT / name).rglob("__init__.py")]
    assert len(files) > len(ROOMS)
    assert [str(path) for path in files if path.stat().st_size] == []


def test_settings_page_names_every_variable_that_is_read_and_no_other() -> None:
    prefix = str(Settings.model_config["env_prefix"])
    settings = {f"{prefix}{name}".upper() for name in Settings.model_fields}
    sources = [path.read_text() for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    read = {name for source in sources for name in VARIABLE.findall(source)}  # by the participant's commands
    assert set(VARIABLE.findall(SETTINGS_PAGE.read_text())) == settings | read


def test_every_setting_is_described_where_it_is_defined() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []
