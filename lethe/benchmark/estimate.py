"""What a benchmark costs before anything is run: runs, device time, disk. From shapes, not from a clock."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lethe.benchmark.plan import CellPlan, Plan
from lethe.benchmark.text_estimate import text_size
from lethe.competition.disk_estimate import KNOWN_SHAPES, run_bytes, train_size
from lethe.competition.file import CompetitionFile
from lethe.data.datasets.image_dataset import ImageDataset
from lethe.data.datasets.registry import open_dataset
from lethe.data.errors import InvalidSplit
from lethe.errors import AppError
from lethe.networks.builders import build
from lethe.preparation.cost_estimate import training_seconds
from lethe.preparation.fingerprint import network_description

RUN_S = 0.2  # a process of its own and the evaluation of its model, measured with small networks
RUN_SHARE = 0.2  # of one retraining: the competition's limit on a run, which most methods keep to


@dataclass(frozen=True)
class CellEstimate:
    """models: trained in preparation. training_s, unlearning_s: of one process on one device. note: what is unknown."""

    name: str
    models: int
    runs: int
    training_s: float | None
    unlearning_s: float | None
    disk_bytes: float | None
    note: str = ""

    def as_text(self) -> tuple[str, ...]:
        times = (_time_text(self.training_s), _time_text(self.unlearning_s))
        return (self.name, str(self.models), str(self.runs), *times, _disk_text(self.disk_bytes))


@dataclass(frozen=True)
class BenchmarkEstimate:
    """cells: one per cell; equal cells are counted once in the sums."""

    cells: tuple[CellEstimate, ...]
    counted: tuple[CellEstimate, ...]

    @property
    def runs(self) -> int:
        return sum(cell.runs for cell in self.counted)

    @property
    def is_whole(self) -> bool:
        """Return whether every cell could be estimated."""
        return all(cell.training_s is not None for cell in self.counted)

    @property
    def time_s(self) -> float:
        """Return the time of the cells that could be estimated, in seconds."""
        return sum((cell.training_s or 0.0) + (cell.unlearning_s or 0.0) for cell in self.counted)

    @property
    def time_text(self) -> str:
        return self._marked(_time_text(self.time_s))

    @property
    def disk_text(self) -> str:
        return self._marked(_disk_text(sum(cell.disk_bytes or 0.0 for cell in self.counted)))

    def _marked(self, text: str) -> str:
        return text if self.is_whole else f"{text} and what is unknown"

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "cells": [asdict(cell) for cell in self.cells],
            "runs": self.runs,
            "time_s": self.time_s,
            "whole": self.is_whole,
        }


def estimate(plan: Plan, *, device: str = "cpu") -> BenchmarkEstimate:
    """Return what the benchmark costs on `device`, cpu or cuda. Raises InvalidSplit for a network that does not fit."""
    cells = (*plan.search_cells, *plan.cells)
    found = {cell.key: _cell_estimate(plan, cell, device) for cell in cells}
    return BenchmarkEstimate(tuple(found[cell.key] for cell in cells), tuple(found.values()))


def _search_runs(plan: Plan) -> int:
    """Return how many runs all searches on one split make at most."""
    tune = plan.file.tune
    if tune is None:
        return 0
    return tune.plan.planned_runs(tune.trials) * sum(method.searched for method in plan.methods)


def _cell_estimate(plan: Plan, cell: CellPlan, device: str) -> CellEstimate:
    n_models, competition = cell.competition.n_models, cell.competition
    sets = 3 if competition.scoring.setup == "reuse-n-n" else 2
    searched = cell in plan.search_cells
    models, runs = sets * n_models + 1, _search_runs(plan) if searched else n_models * len(plan.methods)
    if competition.task.kind == "causal-lm":
        return _text_estimate(cell, models, runs, n_models, device)
    try:
        n_images, description = _shape(competition)
    except InvalidSplit:
        raise
    except AppError as error:
        return CellEstimate(cell.name, models, runs, None, None, None, error.detail)
    n_train = train_size(competition, n_images)
    model_s = training_seconds(description, competition.training, n_images=n_train, device=device)
    per_run = run_bytes(competition, n_train=n_train, n_images=n_images, n_classes=int(description["n_classes"]))
    network_bytes = sum(value.nbytes for value in build(description).state_dict().values())
    kept = min(competition.report.keep_weights, n_models) * (len(plan.methods) + 1)  # of the oracle too
    stored = (runs + models) * per_run + (n_models + 1 + kept) * network_bytes
    return CellEstimate(cell.name, models, runs, models * model_s, runs * (RUN_S + RUN_SHARE * model_s), stored)


def _text_estimate(cell: CellPlan, models: int, runs: int, n_models: int, device: str) -> CellEstimate:
    competition = cell.competition
    try:
        size = text_size(competition)
    except AppError as error:
        return CellEstimate(cell.name, models, runs, None, None, None, error.detail)
    model_s = size.training_s(competition, device=device)
    evaluation_s = size.evaluation_s(competition, device=device)
    run_s = RUN_S + RUN_SHARE * model_s + evaluation_s
    stored = (runs + models) * size.bytes_of_run(competition) + (n_models + 1) * 4 * size.weights
    return CellEstimate(cell.name, models, runs, models * (model_s + evaluation_s), runs * run_s, stored)


def _shape(competition: CompetitionFile) -> tuple[int, Mapping[str, Any]]:
    """Return the number of images and the network's description, by the data set or by what is known of it."""
    name = competition.dataset.name
    try:
        dataset: ImageDataset = open_dataset(competition.dataset)
        return len(dataset), network_description(competition, dataset)
    except InvalidSplit:
        raise
    except AppError:
        if name not in KNOWN_SHAPES:
            raise
        n_images, shape, n_classes = KNOWN_SHAPES[name]
        options = dict(competition.network.options)
        description = {"name": competition.network.name, "options": options, "input_shape": list(shape)}
        return n_images, description | {"n_classes": n_classes, "input_scale": 1.0, "input_shift": 0.0}


def _time_text(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"


def _disk_text(n_bytes: float | None) -> str:
    if n_bytes is None:
        return "unknown"
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 2**30 else f"{n_bytes / 2**20:.0f} MiB"
