"""A small competition, prepared once for all tests of this folder, and a benchmark of seconds that was run."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lethe.benchmark.execution import Execution
from lethe.benchmark.method_runs import child_runs
from lethe.benchmark.plan import read_plan
from lethe.benchmark.store import BenchmarkFolder
from lethe.competition.file import CompetitionFile
from lethe.preparation.prepare import prepare_split
from tests.support import forked_children

MakeCompetition = Callable[..., CompetitionFile]


def competition(**changes: Any) -> CompetitionFile:
    """Return a small digits competition with sections replaced or (given a dict) changed."""
    sections: dict[str, Any] = {
        "slug": "small",
        "title": "Small",
        "opens_at": "2026-01-01T00:00:00Z",
        "closes_at": "2026-02-01T00:00:00Z",
        "n_models": 5,
        "dataset": {"name": "digits", "options": {"noise": 0.5}},
        "network": {"name": "mlp", "options": {"hidden": [12]}},
        "training": {"epochs": 4, "learning_rate": 0.1},
        "splits": {
            "seed": 0,
            "train_size": 200,
            "validation_fraction": 0.05,
            "test_fraction": 0.1,
            "forget": {"by": "random", "fraction": 0.1},
        },
    }
    for name, value in changes.items():
        sections[name] = {**sections.get(name, {}), **value} if isinstance(value, dict) else value
    return CompetitionFile.model_validate(sections)


@pytest.fixture
def make_competition() -> MakeCompetition:
    return competition


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared public split: read it, do not change it."""
    out = tmp_path_factory.mktemp("splits") / "public"
    prepare_split(competition(), "public", out)
    return out


@pytest.fixture
def quick_children() -> Iterator[None]:
    """Child processes of `ChildRuns` and `run_on_split` that are forked, not started."""
    with forked_children.forked_children():
        yield


COMPETITION = """
slug = "tiny"
title = "Tiny"
opens_at = 2026-01-01T00:00:00Z
closes_at = 2026-02-01T00:00:00Z
[dataset]
name = "digits"
options = { noise = 0.5 }
[network]
name = "mlp"
options = { hidden = [12] }
[training]
epochs = 4
learning_rate = 0.1
[splits]
train_size = 200
validation_fraction = 0.05
test_fraction = 0.1
forget = { by = "random", fraction = 0.1 }
"""
BENCHMARK = """
slug = "tiny"
n_models = 4
methods = ["original", { method = "finetune", LR = 0.05 }, { file = "broken.py" }]
metrics = ["score", "accuracy_gap"]
[[cell]]
competition = "tiny_competition.toml"
"""
BROKEN = """
def unlearning(net, retain_loader, forget_loader, val_loader):
    raise ValueError("this method cannot do it")
"""


@pytest.fixture
def write_benchmark(tmp_path: Path):
    """Return a function that writes the benchmark file and what it names, and returns its path."""
    return lambda: write_files(tmp_path)


def write_files(folder: Path) -> Path:
    (folder / "tiny_competition.toml").write_text(COMPETITION)
    (folder / "broken.py").write_text(BROKEN)
    (folder / "benchmark.toml").write_text(BENCHMARK)
    return folder / "benchmark.toml"


def execute(path: Path, out: Path, *, open_runs=child_runs, said=None) -> None:
    """Run a benchmark to its end; with another `open_runs`, the catalogue's methods too run in it."""
    said = [] if said is None else said
    each_apart = open_runs is not child_runs
    with forked_children.forked_children():
        Execution(read_plan(path), BenchmarkFolder(out), open_runs, said.append, each_apart=each_apart).run()


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A benchmark that was run, and its folder: read them, do not change them."""
    folder = tmp_path_factory.mktemp("benchmark")
    path = write_files(folder)
    execute(path, folder / "out")
    return path, folder / "out"
