"""Preparation of image competitions: what `lethe.preparation.task_kinds` asks of a kind of task."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from lethe.competition.file import CompetitionFile
from lethe.competition.split_report import SplitReport
from lethe.competition.visibility import Visibility
from lethe.data.datasets import registry
from lethe.data.datasets.image_dataset import ImageDataset
from lethe.data.errors import InvalidDataset
from lethe.data.partition import Cut, Indices, cut_dataset
from lethe.data.stored_sets import StoredSet, read_true_labels, write_sets
from lethe.evaluation.inference import SplitEvaluator
from lethe.evaluation.manifest import EvaluationSettings
from lethe.preparation import cost_estimate, fingerprint, model_shards, split_report
from lethe.preparation.batch_size import choose_batch_size
from lethe.training import trainer, trainer_selection
from lethe.training.trainer import TrainingJob

train_models = trainer_selection.train_models
training_accuracy = trainer.training_accuracy


def open_dataset(competition: CompetitionFile) -> ImageDataset:
    dataset = registry.open_dataset(competition.dataset)
    if dataset.is_table:
        _require_no_pictures(competition)
    return dataset


def _require_no_pictures(competition: CompetitionFile) -> None:
    """Raise InvalidDataset where a competition of a table asks for what is done to pictures."""
    training, forget = competition.training, competition.splits.forget
    for name, value, is_for_pictures in (
        ("training.augmentation", training.augmentation, training.augmentation != "none"),
        ("training.mixing", training.mixing, training.mixing == "cutmix"),
        ("splits.forget.by", forget.by, forget.by == "backdoor"),
    ):
        if is_for_pictures:
            raise InvalidDataset(f"{name} {value!r} is for pictures: the dataset is a table of features")


def cut(dataset: ImageDataset, competition: CompetitionFile, visibility: Visibility) -> Cut:
    return cut_dataset(dataset, competition, visibility)


def describe_network(competition: CompetitionFile, dataset: ImageDataset) -> dict[str, Any]:
    return fingerprint.network_description(competition, dataset)


def data_files(competition: CompetitionFile) -> tuple[str, ...]:  # noqa: ARG001 - the same for all
    return ()


def write_data(split_dir: Path, competition: CompetitionFile, dataset: ImageDataset, cut: Cut) -> None:  # noqa: ARG001
    write_sets(split_dir, dataset, cut)


def report(dataset: ImageDataset, competition: CompetitionFile, cut: Cut, visibility: Visibility) -> SplitReport:
    return split_report.make_split_report(dataset, competition, cut, visibility)


def read_set(path: Path) -> StoredSet:
    return StoredSet.read(path)


def make_job(
    split_dir: Path,  # noqa: ARG001 - models of images start from their seed alone
    competition: CompetitionFile,
    network: Mapping[str, Any],
    sets: list[StoredSet],
    *,
    device: str,
) -> TrainingJob:
    # one set alone stays memory-mapped
    images = sets[0].images if len(sets) == 1 else torch.cat([part.images for part in sets])
    labels = torch.cat([part.labels for part in sets])
    return TrainingJob.on_device(network, competition.training, images, labels, device=device)


def chance(network: Mapping[str, Any]) -> float:
    return 1 / int(network["n_classes"])


def batch_size(network: Mapping[str, Any], sets: Mapping[str, StoredSet], *, device: str, precision: Any) -> int:
    return choose_batch_size(network, sets, device=device, precision=precision)


def training_seconds(
    network: Mapping[str, Any], competition: CompetitionFile, retain: StoredSet, *, device: str
) -> float:
    return cost_estimate.training_seconds(network, competition.training, n_images=len(retain), device=device)


def models_per_shard(network: Mapping[str, Any], competition: CompetitionFile, *, model_s: float, device: str) -> int:
    return model_shards.models_per_shard(network, competition.training, model_s=model_s, device=device)


def make_evaluator(
    split_dir: Path,
    network: Mapping[str, Any],
    sets: Mapping[str, StoredSet],
    *,
    device: str,
    settings: EvaluationSettings,
) -> SplitEvaluator:
    return SplitEvaluator(
        network,
        sets,
        device=device,
        batch_size=settings.batch_size,
        precision=settings.precision,
        levels=settings.capture,
        true_forget_labels=read_true_labels(split_dir),
    )


def write_sample_sets(
    split_dir: Path,
    competition: CompetitionFile,  # noqa: ARG001
    dataset: ImageDataset,
    parts: Mapping[str, Indices],
) -> None:
    for name, part in parts.items():
        StoredSet.cut_from(dataset, part, dataset.labels).write(split_dir / "sample" / f"{name}.safetensors")


def sample_answer_files() -> tuple[str, ...]:
    return ()


def write_sample_answers(
    split_dir: Path, competition: CompetitionFile, dataset: ImageDataset, *, device: str
) -> None:  # models of images answer nothing
    pass
