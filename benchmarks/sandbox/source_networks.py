"""What it costs that a network given as Python text is built and used in a confined process only.

Each figure stands beside the same work on the same network in this process, measured in the same run, in turn. Times
are the best of several.

python -m benchmarks.sandbox.source_networks [--models 8] [--runs 10]
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch

from lethe.competition.file import CompetitionFile
from lethe.competition.visibility import Visibility
from lethe.data.datasets.roots import datasets_below
from lethe.evaluation.inference import SplitEvaluator, load_original
from lethe.networks.builders import TRUST_SOURCE
from lethe.preparation.prepare import finish_split, make_split
from sandbox.launcher import Launcher, RunRequest, SandboxSpec
from sandbox.policy import RunPolicy
from server.config import Settings
from worker import source_networks

SOURCE = """
from torch import nn

def build(input_shape, n_classes):
    channels, height, across = input_shape
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * across, 64), nn.ReLU(), nn.Linear(64, n_classes))
"""
UNCHANGED = "def unlearning(net, retain, forget, validation):\n    return net\n"


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=8)
    parser.add_argument("--runs", type=int, default=10)
    given = parser.parse_args()
    os.environ[TRUST_SOURCE] = "1"  # for the side that is not confined
    with tempfile.TemporaryDirectory(prefix="lethe-source-networks-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        _print("prepare a split, s", *_preparation(folder, n_models=given.models))
        _print("evaluate one model, warm, ms", *_evaluation(folder, runs=given.runs))
        _print("one run of a submission, warm, ms", *_runs(folder, runs=given.runs))


def _print(what: str, plain: float, confined: float) -> None:
    print(f"{what:40}{plain:12.3f}{confined:12.3f}   x {confined / plain:.2f}", flush=True)


def _competition(network: dict[str, Any], n_models: int) -> CompetitionFile:
    return CompetitionFile.model_validate(
        {
            "slug": "source",
            "title": "A network as Python text",
            "opens_at": "2026-01-01T00:00:00Z",
            "closes_at": "2026-02-01T00:00:00Z",
            "weak_seed": True,
            "n_models": n_models,
            "dataset": {"name": "digits"},
            "network": network,
            "training": {"epochs": 10, "learning_rate": 0.1},
            "splits": {"seed": 1, "forget": {"by": "random", "fraction": 0.05}},
        }
    )


def _preparation(folder: Path, *, n_models: int) -> tuple[float, float]:
    competition = _competition({"name": "module", "options": {"source": SOURCE}}, n_models)
    make_split(competition, Visibility.PUBLIC, folder / "warm")  # what only the first call in a process pays
    began = time.perf_counter()
    make_split(competition, Visibility.PUBLIC, folder / "plain")
    between = time.perf_counter()
    with datasets_below([]):
        manifest = source_networks.make_split(
            _settings(folder), competition, Visibility.PUBLIC, folder / "split", progress=lambda _: None
        )
    ended = time.perf_counter()
    finish_split(manifest, folder / "split")
    library = _competition({"name": "mlp", "options": {"hidden": [64]}}, 2)
    finish_split(make_split(library, Visibility.PUBLIC, folder / "library"), folder / "library")
    return between - began, ended - between


def _evaluation(folder: Path, *, runs: int) -> tuple[float, float]:
    weights = safetensors.torch.save(load_original(folder / "split"))
    plain = SplitEvaluator.load(folder / "split")
    confined = source_networks.ConfinedEvaluator(_settings(folder), folder / "split")
    try:
        return _in_turn(lambda: plain.evaluate(weights), lambda: confined.evaluate(weights), runs=runs)
    finally:
        confined.close()


def _runs(folder: Path, *, runs: int) -> tuple[float, float]:
    """Return a run's time with a network of the library, and with the same one as text, which each run builds."""
    stage = folder / "stage"
    code = stage / "one"
    code.mkdir(parents=True)
    (code / "submission.py").write_text(UNCHANGED)
    specs = [
        SandboxSpec(data_dir=folder / name / "visible", stage_dir=stage, policy=RunPolicy())
        for name in ("library", "split")
    ]
    with Launcher(specs[0]).start() as library, Launcher(specs[1]).start() as source:
        asked = RunRequest(code_dir=code, seed=1)
        return _in_turn(lambda: library.run(asked), lambda: source.run(asked), runs=runs)


def _in_turn(plain: Callable[[], object], confined: Callable[[], object], *, runs: int) -> tuple[float, float]:
    """Return the best times of both in ms, the first call of each left out."""
    best = [float("inf")] * 2
    for run in range(runs + 1):
        for side, work in enumerate((plain, confined)):
            began = time.perf_counter()
            work()
            if run:
                best[side] = min(best[side], 1000 * (time.perf_counter() - began))
    return best[0], best[1]


def _settings(folder: Path) -> Settings:
    return Settings(home=folder / "home")


if __name__ == "__main__":
    main()
