"""What an installed package adds by entry points: a metric, methods, a dataset, a network."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.checkout import run as run_in
from tests.support.forked_children import run_code

METRIC = """
from lethe.metrics import Direction, Metric, MetricResult
from lethe.metrics.core.registry import Need

def spread(unlearned):
    '''Return the range of the accuracies.'''
    return MetricResult(float(max(unlearned) - min(unlearned)))

METRIC = Metric(
    id="spread", title="Spread", function=spread, needs={"unlearned": Need("retain_accuracy")},
    unit="share", direction=Direction.LOWER, source="this test", formula="max - min",
)
"""
METHOD = '''"""Nothing

Does nothing.

Pseudo-code:
    return
Source: this test
Budget: none
Deterministic: yes
Differences: none
Needs: nothing
"""
raise SystemExit("the catalogue reads a method without running it")


def unlearning(net, retain_loader, forget_loader, val_loader):
    pass
'''
NETWORK = """
from torch import nn

def build(input_shape, n_classes, *, width: int = 3):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(width), nn.Linear(width, n_classes))
"""
DATASET = """
import numpy as np
from lethe.data.datasets.image_dataset import ImageDataset

def open_dots(options):
    images = np.zeros((4, 1, 2, 2), np.uint8)
    return ImageDataset(images=images, labels=np.array([0, 1, 0, 1]), persons=np.arange(4), n_classes=2)
"""
ENTRY_POINTS = """
[lethe.metrics]
spread = plugin.spread
[lethe.methods]
nothing = plugin.nothing
[lethe.methods.text]
silence = plugin.nothing
[lethe.datasets]
dots = plugin.dots:open_dots
[lethe.networks]
thin = plugin.thin:build
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with an installed package."""
    files = {"__init__": "", "spread": METRIC, "nothing": METHOD, "thin": NETWORK, "dots": DATASET}
    (tmp_path / "plugin").mkdir()
    for name, text in files.items():
        (tmp_path / "plugin" / f"{name}.py").write_text(text)
    information = tmp_path / "plugin-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(ENTRY_POINTS)
    return tmp_path


def run(site: Path, program: str) -> str:
    return run_code(f"import sys; sys.path.insert(0, {str(site)!r})\n{program}")


def answer(site: Path, program: str) -> object:
    return json.loads(run(site, f"import json\n{program}"))


def test_metric_of_an_installed_package_is_the_last(site: Path) -> None:
    program = (
        "from lethe.metrics import metric, metrics; print(json.dumps([list(metrics())[-1], metric('spread').title]))"
    )
    assert answer(site, program) == ["spread", "Spread"]


def test_methods_of_an_installed_package_are_read_and_not_imported(site: Path) -> None:
    program = (
        "from lethe.methods.catalogue import method_ids, method_info;"
        "print(json.dumps(['nothing' in method_ids(), method_info('nothing').title, method_info('silence').task]))"
    )
    assert answer(site, program) == [True, "Nothing", "causal-lm"]


def test_dataset_of_an_installed_package_is_opened(site: Path) -> None:
    program = (
        "from lethe.competition.file import Dataset; from lethe.data.datasets.registry import open_dataset;"
        "print(json.dumps(len(open_dataset(Dataset(name='dots')).labels)))"
    )
    assert answer(site, program) == 4


def test_network_of_an_installed_package_is_built_with_its_options(site: Path) -> None:
    program = (
        "from lethe.networks.builders import build;"
        "net = build(dict(name='thin', options=dict(width=5), input_shape=[1, 2, 2], n_classes=2));"
        "print(json.dumps(net[1].out_features))"
    )
    assert answer(site, program) == 5
    with pytest.raises(RuntimeError, match="network 'thin' has no option 'wide': allowed are width"):
        run(site, program.replace("width=5", "wide=5"))


LIST_METRICS = "from lethe.metrics import metrics; metrics()"
LIST_METHODS = "from lethe.methods.catalogue import method_ids; method_ids()"
LIST_DATASETS = "from lethe.data.datasets.registry import adapters; adapters()"


@pytest.mark.parametrize(
    ("old", "new", "program", "said"),
    [
        ("plugin.spread", "plugin.thin", LIST_METRICS, "'spread' of lethe.metrics names plugin.thin: no Metric"),
        ("nothing = ", "scrub = ", LIST_METHODS, "an installed package has a method 'scrub'"),
        ("nothing = plugin.nothing", "nothing = plugin.gone", LIST_METHODS, "names plugin.gone: no such module"),
        ("dots = ", "mnist = ", LIST_DATASETS, "two datasets are called 'mnist'"),
    ],
)
def test_entry_point_that_does_not_fit_is_named(site: Path, old: str, new: str, program: str, said: str) -> None:
    (points,) = site.glob("*.dist-info/entry_points.txt")
    points.write_text(ENTRY_POINTS.replace(old, new))
    with pytest.raises(RuntimeError, match=re.escape(said)):
        run(site, program)


@pytest.mark.slow
def test_example_package_is_installed_and_passes_its_tests(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "plugin", tmp_path / "plugin")
    install = ["install", "-q", "--no-deps", "--no-build-isolation", "--no-index", "--target", "site", "./plugin"]
    subprocess.run([sys.executable, "-m", "pip", *install], cwd=tmp_path, check=True, capture_output=True)
    said = run_in("-m", "pytest", "-q", "-W", "error", "-p", "no:valkey", "../plugin/tests", folder=tmp_path / "site")
    assert "4 passed" in said
