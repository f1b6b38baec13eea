"""What an installed package adds by entry points: examples/plugin, as a program finds it and as pip installs it."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.checkout import run as run_in
from tests.support.forked_children import run_code

PLUGIN = ROOT / "examples" / "plugin"
LOOK = """
import json
from lethe.competition.file import Dataset
from lethe.data.datasets.registry import open_dataset
from lethe.methods.catalogue import method_ids, method_info
from lethe.metrics import metrics
from lethe.networks.builders import build
net = build({"name": "bottleneck", "options": {"width": 5}, "input_shape": [1, 8, 8], "n_classes": 2})
print(json.dumps({
    "last metric": list(metrics())[-1],
    "methods": ["shrink" in method_ids(), method_info("silence").task, "lethe_example.shrink" in sys.modules],
    "examples": len(open_dataset(Dataset(name="stripes", options={"n": 40})).labels),
    "width": len(net[1].bias),
}))
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with the installed package, which has a method for language models too."""
    shutil.copytree(PLUGIN / "lethe_example", tmp_path / "lethe_example")
    groups = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]["entry-points"]
    lines = ["[lethe.methods.text]", "silence = lethe_example.shrink"]
    for group, names in groups.items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in names.items())]
    information = tmp_path / "plugin-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("\n".join(lines))
    return tmp_path


def run(site: Path, program: str) -> str:
    return run_code(f"import sys; sys.path.insert(0, {str(site)!r})\n{program}")


def test_what_an_installed_package_adds_is_found(site: Path) -> None:
    assert json.loads(run(site, LOOK)) == {
        "last metric": "confidence_gap",
        "methods": [True, "causal-lm", False],  # read, not imported
        "examples": 40,
        "width": 5,
    }
    with pytest.raises(RuntimeError, match="network 'bottleneck' has no option 'wide': allowed are width"):
        run(site, LOOK.replace('"width"', '"wide"'))


LIST_METRICS = "from lethe.metrics import metrics; metrics()"
LIST_METHODS = "from lethe.methods.catalogue import method_ids; method_ids()"
LIST_DATASETS = "from lethe.data.datasets.registry import adapters; adapters()"


@pytest.mark.parametrize(
    ("old", "new", "program", "said"),
    [
        ("example.confidence_gap", "example.towns", LIST_METRICS, "names lethe_example.towns: no Metric"),
        ("\nshrink = ", "\nscrub = ", LIST_METHODS, "an installed package has a method 'scrub'"),
        ("shrink = lethe_example.shrink", "s = lethe_example.gone", LIST_METHODS, "lethe_example.gone: no such module"),
        ("stripes = ", "mnist = ", LIST_DATASETS, "two datasets are called 'mnist'"),
    ],
)
def test_entry_point_that_does_not_fit_is_named(site: Path, old: str, new: str, program: str, said: str) -> None:
    (points,) = site.glob("*.dist-info/entry_points.txt")
    points.write_text(points.read_text().replace(old, new))
    with pytest.raises(RuntimeError, match=re.escape(said)):
        run(site, program)


@pytest.mark.slow
def test_example_package_is_installed_and_passes_its_tests(tmp_path: Path) -> None:
    shutil.copytree(PLUGIN, tmp_path / "plugin")
    install = ["install", "-q", "--no-deps", "--no-build-isolation", "--no-index", "--target", "site", "./plugin"]
    subprocess.run([sys.executable, "-m", "pip", *install], cwd=tmp_path, check=True, capture_output=True)
    said = run_in("-m", "pytest", "-q", "-W", "error", "-p", "no:valkey", "../plugin/tests", folder=tmp_path / "site")
    assert "4 passed" in said
