"""What a benchmark costs before anything is run: runs, device time, disk. From shapes, not from a clock."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from lethe.benchmark.plan import CellPlan, Plan
from lethe.competition.estimates import KNOWN_SHAPES, RATES, run_bytes, train_size
from lethe.competition.file import CompetitionFile
from lethe.competition.task import CausalLm
from lethe.data.datasets.image_dataset import ImageDataset
from lethe.data.datasets.registry import open_dataset
from lethe.data.errors import InvalidSplit
from lethe.errors import AppError
from lethe.networks.builders import build
from lethe.preparation.image_task import describe_network
from lethe.preparation.task_kinds import task_preparation, training_seconds

# Files that may not be at hand, by their folder: questions and mean tokens of a data set, weights of a network
KNOWN_TEXTS = {"tofu": (4000, 65.3)}  # counted with Llama 2's tokenizer
KNOWN_WEIGHTS = {"phi-1_5": 1_418_270_720, "gpt2": 124_439_808, "gpt2-xl": 1_557_611_200}
LOSSES = 9  # numbers of a question that metrics read: of its answer, a paraphrase and wrong answers, and others
TOKEN_BYTES = 13  # what is kept of a token of an answer


@dataclass(frozen=True)
class TextSize:
    """n_questions: of the data set. tokens: the mean of a question with its answer. weights: of the network."""

    n_questions: int
    tokens: float
    weights: int

    def training_s(self, competition: CompetitionFile, *, device: str) -> float:
        """Return about how long one process trains one model: six operations for each weight and token."""
        operations = 6 * self.weights * self.tokens * self._n_train(competition) * competition.training.epochs
        return operations / RATES[device]

    def evaluation_s(self, competition: CompetitionFile, *, device: str) -> float:
        """Return about how long the losses of all sets and the answers of the measured questions take."""
        task = competition.task
        asked = self._n_forget(competition) + (task.measured_retain if isinstance(task, CausalLm) else 0)
        generated = asked * task.max_new_tokens if isinstance(task, CausalLm) else 0
        return 2 * self.weights * (self.tokens * self.n_questions + generated) / RATES[device]

    def bytes_of_run(self, competition: CompetitionFile) -> float:
        """Return what is stored of one model beside its weights."""
        n_forget = self._n_forget(competition)
        return n_forget * (8 + 8 * LOSSES + TOKEN_BYTES * self.tokens)

    def _n_train(self, competition: CompetitionFile) -> float:
        splits = competition.splits
        return self.n_questions * (1 - splits.validation_fraction - splits.test_fraction)

    def _n_forget(self, competition: CompetitionFile) -> float:
        return competition.splits.forget.fraction * self._n_train(competition)


def text_size(competition: CompetitionFile) -> TextSize:
    """Return the sizes of a text competition. Raises AppError for files that are neither there nor known."""
    task = task_preparation("causal-lm")
    try:
        dataset = task.open_dataset(competition)
        description = task.describe_network(competition, dataset)
    except AppError:
        folder = str(competition.dataset.options.get("root", "")).rstrip("/").rpartition("/")[2]
        network = competition.network.options.get("pretrained")
        if folder not in KNOWN_TEXTS or network not in KNOWN_WEIGHTS:
            raise
        return TextSize(*KNOWN_TEXTS[folder], KNOWN_WEIGHTS[network])
    texts = dataset.questions[:: max(1, len(dataset) // 200)]
    encode = dataset.tokenizer.encode
    tokens = sum(len(encode(one.question)) + len(encode(one.answer)) for one in texts) / len(texts)
    with torch.device("meta"):  # shapes alone: a network of a billion weights takes no memory
        weights = sum(parameter.numel() for parameter in build(description).parameters())
    return TextSize(len(dataset), tokens, weights)


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


def _cell_estimate(plan: Plan, cell: CellPlan, device: str) -> CellEstimate:
    n_models, competition = cell.competition.n_models, cell.competition
    sets = 3 if competition.scoring.setup == "reuse-n-n" else 2
    models, runs = sets * n_models + 1, n_models * len(plan.methods)
    if cell in plan.search_cells and (tune := plan.file.tune):
        runs = tune.plan.planned_runs(tune.trials) * sum(method.searched for method in plan.methods)
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
        return len(dataset), describe_network(competition, dataset)
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
