"""What preparing a split needs of a kind of task: its data, its network, its models.

Each kind is a module that has the functions of TaskPreparation.

How long training takes is estimated from shapes alone: no clock decides how a split is cut into shards, so two
preparations of one split lay their models into the same files.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from lethe.competition.estimates import arithmetic_seconds
from lethe.competition.file import CompetitionFile, Training
from lethe.competition.preparation_share import SplitReport
from lethe.competition.task import Kind
from lethe.competition.visibility import Visibility
from lethe.data.forget_sets import Cut
from lethe.evaluation.evaluators import Evaluator
from lethe.evaluation.manifest import EvaluationSettings
from lethe.networks.builders import build
from lethe.training.checkpoints import TrainingCheckpoints
from lethe.training.trainer import Job, OnEpoch, OnNote, State


def training_seconds(network: Mapping[str, Any], recipe: Training, *, n_images: int, device: str) -> float:
    """Return about how long one process trains one model."""
    return arithmetic_seconds(forward_operations(network), recipe, n_images=n_images, device=device)


def forward_operations(network: Mapping[str, Any]) -> int:
    """Return the additions and multiplications of convolutions and linear layers for one image, about."""
    counted = 0

    def count(module: nn.Module, _: object, output: Tensor) -> None:
        nonlocal counted
        weight: Any = module.weight
        counted += 2 * int(weight.numel()) * (output.numel() // len(weight))

    with torch.random.fork_rng(devices=[]), torch.no_grad():
        net = build(network).train()  # in evaluation mode some attention layers pass over their parts
        for module in net.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                module.register_forward_hook(count)
        net(torch.zeros(2, *network["input_shape"]))  # batch normalisation wants more than one
        return max(counted // 2, 2 * sum(parameter.numel() for parameter in net.parameters()))


MODULES: dict[Kind, str] = {
    "image-classification": "lethe.preparation.image_task",
    "causal-lm": "lethe.preparation.text_task",
}


class TaskPreparation(Protocol):
    """One kind of task. `dataset` is what its `open_dataset` returns, `sets` what its `read_set` does."""

    def open_dataset(self, competition: CompetitionFile) -> Any:
        """Return the competition's data. Raises InvalidDataset."""

    def cut(self, dataset: Any, competition: CompetitionFile, visibility: Visibility) -> Cut:
        """Return which example goes where. Raises InvalidSplit."""

    def describe_network(self, competition: CompetitionFile, dataset: Any) -> dict[str, Any]:
        """Return network.json's content. Raises InvalidSplit where the network does not fit the data."""

    def data_files(self, competition: CompetitionFile) -> tuple[str, ...]:
        """Return the files that `write_data` writes beside the four sets."""

    def write_data(self, split_dir: Path, competition: CompetitionFile, dataset: Any, cut: Cut) -> None:
        """Write the four sets of a split, and the data files."""

    def report(self, dataset: Any, competition: CompetitionFile, cut: Cut, visibility: Visibility) -> SplitReport:
        """Return what an organiser should look at before opening the competition."""

    def read_set(self, path: Path) -> Any:
        """Return a set that was written; it has a length."""

    def make_job(
        self, split_dir: Path, competition: CompetitionFile, network: Mapping[str, Any], sets: list[Any], *, device: str
    ) -> Job:
        """Return what models are trained on: all examples of the sets."""

    def train_models(
        self,
        job: Any,
        seeds: Mapping[int, int],
        *,
        checkpoints: TrainingCheckpoints | None = None,
        on_epoch: OnEpoch | None = None,
        on_note: OnNote | None = None,
    ) -> State:
        """Return the state_dicts of all models, stacked. seeds: index of a model -> its seed."""

    def training_accuracy(self, job: Any, state: State) -> float:
        """Return a model's accuracy on what it was trained on."""

    def chance(self, network: Mapping[str, Any]) -> float:
        """Return the accuracy of guessing."""

    def batch_size(self, network: Mapping[str, Any], sets: Mapping[str, Any], *, device: str, precision: Any) -> int:
        """Return the batch size of evaluation, fixed for the split."""

    def training_seconds(
        self, network: Mapping[str, Any], competition: CompetitionFile, retain: Any, *, device: str
    ) -> float:
        """Return about how long one process trains one model."""

    def make_evaluator(
        self,
        split_dir: Path,
        network: Mapping[str, Any],
        sets: Mapping[str, Any],
        *,
        device: str,
        settings: EvaluationSettings,
    ) -> Evaluator:
        """Return what evaluates the split's models while it is prepared."""

    def write_sample_sets(
        self, split_dir: Path, competition: CompetitionFile, dataset: Any, parts: Mapping[str, Any]
    ) -> None:
        """Write the three sets of the public sample."""

    def sample_answer_files(self) -> tuple[str, ...]:
        """Return the files that `write_sample_answers` writes; none where models answer nothing."""

    def write_sample_answers(self, split_dir: Path, competition: CompetitionFile, dataset: Any, *, device: str) -> None:
        """Write what models that were trained on the sample answer to its forget questions."""


def task_preparation(kind: Kind) -> TaskPreparation:
    """Return the preparation of a kind of task."""
    return cast(TaskPreparation, import_module(MODULES[kind]))
