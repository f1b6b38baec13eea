"""examples/plugin, installed as a package outside the checkout, passes its own tests."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkout import ROOT, run

pytestmark = pytest.mark.slow


def test_example_package_is_installed_and_passes_its_tests(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "plugin", tmp_path / "plugin")
    install = ["install", "-q", "--no-deps", "--no-build-isolation", "--no-index", "--target", "site", "./plugin"]
    subprocess.run([sys.executable, "-m", "pip", *install], cwd=tmp_path, check=True, capture_output=True)
    said = run("-m", "pytest", "-q", "-W", "error", "-p", "no:valkey", "../plugin/tests", folder=tmp_path / "site")
    assert "4 passed" in said
