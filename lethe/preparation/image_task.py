"""Preparation of image competitions: what `lethe.preparation.task_kinds` asks of a kind of task.

The batch size of evaluation is found once for a split, then fixed in its manifest: measured on a GPU; on a CPU it
follows from the image's size, so that preparing a split twice gives the same bits.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from lethe.competition.file import CompetitionFile
from lethe.data.datasets import registry
from lethe.data.datasets.image_dataset import ImageDataset
from lethe.data.errors import InvalidDataset
from lethe.data.forget_sets import Cut, Indices, cut_dataset
from lethe.data.stored_sets import StoredSet, read_true_labels, write_sets
from lethe.device.memory import ran_out_of_memory
from lethe.device.precision import Precision
from lethe.evaluation.image_evaluation import SplitEvaluator
from lethe.evaluation.manifest import EvaluationSettings
from lethe.preparation import fingerprint, model_shards, split_report, task_kinds
from lethe.training import trainer, trainer_selection
from lethe.training.trainer import TrainingJob, untrained

CANDIDATES = (64, 128, 256, 512, 1024, 2048, 4096)
CPU_BATCH, CPU_BATCH_TINY, TINY_PIXELS = 256, 1024, 256
TIMED_IMAGES = 4096
WORTH_IT = 1.05  # a larger batch must be this much faster, since it also needs more memory


def choose_batch_size(
    network: Mapping[str, Any], sets: Mapping[str, StoredSet], *, device: str, precision: Precision
) -> int:
    """Return the batch size at which this device evaluates this network fastest."""
    if device == "cpu":
        return CPU_BATCH_TINY if sets["retain"].images[0].numel() <= TINY_PIXELS else CPU_BATCH
    timed = sets["retain"].part(0, TIMED_IMAGES)
    state = untrained(network, 0).state_dict()
    best_size, best_rate = CANDIDATES[0], 0.0
    for size in CANDIDATES:
        try:
            rate = _images_per_second(network, timed, state, device=device, precision=precision, batch_size=size)
        except RuntimeError as error:
            if not ran_out_of_memory(error):
                raise
            break
        if rate > best_rate * WORTH_IT:
            best_size, best_rate = size, rate
        if size >= len(timed):
            break
    return best_size


def _images_per_second(
    network: Mapping[str, Any],
    timed: StoredSet,
    state: Mapping[str, torch.Tensor],
    *,
    device: str,
    precision: Precision,
    batch_size: int,
) -> float:
    sets = {"retain": timed, "forget": timed.part(0, 1), "test": timed.part(0, 1)}
    evaluator = SplitEvaluator(network, sets, device=device, batch_size=batch_size, precision=precision)
    evaluator.evaluate_state(state)
    started = time.perf_counter()
    evaluator.evaluate_state(state)
    return len(timed) / (time.perf_counter() - started)


batch_size = choose_batch_size
cut = cut_dataset
describe_network = fingerprint.network_description
read_set = StoredSet.read
report = split_report.make_split_report
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


def data_files(competition: CompetitionFile) -> tuple[str, ...]:  # noqa: ARG001 - the same for all
    return ()


def write_data(split_dir: Path, competition: CompetitionFile, dataset: ImageDataset, cut: Cut) -> None:  # noqa: ARG001
    write_sets(split_dir, dataset, cut)


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


def training_seconds(
    network: Mapping[str, Any], competition: CompetitionFile, retain: StoredSet, *, device: str
) -> float:
    return task_kinds.training_seconds(network, competition.training, n_images=len(retain), device=device)


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
