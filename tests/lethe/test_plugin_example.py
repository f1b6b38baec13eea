"""examples/plugin, installed as a package outside the checkout, passes its own tests."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def test_example_package_is_installed_and_passes_its_tests(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "plugin", tmp_path / "plugin")
    install = ["install", "-q", "--no-deps", "--no-build-isolation", "--no-index", "--target", "site", "./plugin"]
    subprocess.run([sys.executable, "-m", "pip", *install], cwd=tmp_path, check=True, capture_output=True)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path / "site"), str(ROOT)))}
    tests = [sys.executable, "-P", "-m", "pytest", "-q", "-W", "error", "-p", "no:valkey", "plugin/tests"]
    ran = subprocess.run(tests, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "4 passed" in ran.stdout
