"""Preparation of image competitions: what `lethe.preparation.task_kinds` asks of a kind of task.

The batch size of evaluation is found once for a split, then fixed in its manifest: measured on a GPU; on a CPU it
follows from the image's size, so that preparing a split twice gives the same bits.
"""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lethe.competition.file import CompetitionFile
from lethe.competition.preparation_share import SharedBySets, SplitReport
from lethe.competition.visibility import Visibility
from lethe.data.datasets import registry
from lethe.data.datasets.image_dataset import ImageDataset
from lethe.data.errors import InvalidDataset, InvalidSplit
from lethe.data.forget_sets import Cut, Indices, cut_dataset
from lethe.data.stored_sets import StoredSet, read_true_labels, write_sets
from lethe.device import Precision, ran_out_of_memory
from lethe.evaluation.image_evaluation import SplitEvaluator
from lethe.evaluation.manifest import EvaluationSettings
from lethe.networks.builders import build
from lethe.preparation import task_kinds
from lethe.training import many_models, trainer
from lethe.training.trainer import TrainingJob, untrained

CANDIDATES = (64, 128, 256, 512, 1024, 2048, 4096)
CPU_BATCH, CPU_BATCH_TINY, TINY_PIXELS = 256, 1024, 256
TIMED_IMAGES = 4096
WORTH_IT = 1.05  # a larger batch must be this much faster, since it also needs more memory


def batch_size(network: Mapping[str, Any], sets: Mapping[str, StoredSet], *, device: str, precision: Precision) -> int:
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


cut = cut_dataset
read_set = StoredSet.read
train_models = many_models.train_models
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


def describe_network(competition: CompetitionFile, dataset: ImageDataset) -> dict[str, Any]:
    """Return network.json's content. Raises InvalidSplit where the network cannot be built for these images."""
    description = {
        "name": competition.network.name,
        "options": dict(competition.network.options),
        "input_shape": list(dataset.input_shape),
        "n_classes": dataset.n_classes,
        "input_scale": dataset.input_scale,
        "input_shift": dataset.input_shift,
    }
    try:
        outputs = _outputs(description)
    except (ValueError, TypeError) as error:
        raise InvalidSplit(f"[network]: {error}") from error
    except Exception as error:  # an organiser's own module may raise anything, and networks fail on images too small
        raise InvalidSplit(f"[network]: {type(error).__name__}: {error}") from error
    if not isinstance(outputs, torch.Tensor) or outputs.shape != (2, dataset.n_classes):
        found = list(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
        raise InvalidSplit(
            f"[network]: {description['name']} must give [images, {dataset.n_classes}] logits, in training too; "
            f"for two images it gives {found}"
        )
    return description


def _outputs(description: dict[str, Any]) -> object:
    """Return what the network gives for two black images while it is trained."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        outputs: object = build(description).train()(torch.zeros(2, *description["input_shape"]))
    return outputs


SIDE = 8  # an image is compared as SIDE x SIDE grey means
SIMILAR = 0.995  # correlation of two such thumbnails from which on they count as near-duplicates
BLOCK = 2048
SHOWN = 20
Thumbnails = NDArray[np.float32]


def report(dataset: ImageDataset, competition: CompetitionFile, cut: Cut, visibility: Visibility) -> SplitReport:
    """Return the report of one split."""
    sets = dict(cut.sets())
    return SplitReport(
        competition=competition.slug,
        visibility=visibility,
        images={name: len(indices) for name, indices in sets.items()},
        persons={name: len(np.unique(dataset.persons[indices])) for name, indices in sets.items()},
        classes={name: _class_counts(dataset, cut, indices) for name, indices in sets.items()},
        class_names=_class_names(dataset),
        confused_labels=int((cut.labels != dataset.labels).sum()),
        pairs=[_pair(dataset, sets, left, right) for left, right in combinations(sets, 2)],
    )


def _class_names(dataset: ImageDataset) -> list[str]:
    return list(dataset.class_names or (str(label) for label in range(dataset.n_classes)))


def _class_counts(dataset: ImageDataset, cut: Cut, indices: Indices) -> dict[str, int]:
    counts = np.bincount(cut.labels[indices], minlength=dataset.n_classes).tolist()
    return dict(zip(_class_names(dataset), counts, strict=True))


def _pair(dataset: ImageDataset, sets: dict[str, Indices], left: str, right: str) -> SharedBySets:
    a, b = sets[left], sets[right]
    found = duplicates_between(dataset, a, b)
    return SharedBySets(
        sets=(left, right),
        shared_images=len(np.intersect1d(a, b)),
        shared_persons=len(np.intersect1d(dataset.persons[a], dataset.persons[b])),
        exact_duplicates=found.exact,
        near_duplicates=found.near,
        examples=list(found.examples),
    )


@dataclass(frozen=True)
class Duplicates:
    """Pairs of images from two sets. `examples` are (id, id, correlation) of the most similar ones."""

    exact: int
    near: int
    examples: tuple[tuple[int, int, float], ...]


def duplicates_between(dataset: ImageDataset, left: Indices, right: Indices) -> Duplicates:
    """Return how many images of `right` have an exact or near duplicate in `left`.

    Thumbnails of flat images have no correlation and are compared byte for byte only.
    """
    hashes = {_hash(dataset, i) for i in left}
    exact = sum(_hash(dataset, i) in hashes for i in right)
    a, b = thumbnails(dataset, left), thumbnails(dataset, right)
    best_value = np.full(len(right), -1.0, np.float32)
    best_index = np.zeros(len(right), np.int64)
    for start in range(0, len(left), BLOCK):
        similarity = b @ a[start : start + BLOCK].T
        place = similarity.argmax(axis=1)
        value = similarity[np.arange(len(right)), place]
        better = value > best_value
        best_value[better], best_index[better] = value[better], place[better] + start
    near = np.flatnonzero(best_value >= SIMILAR)
    order = near[np.argsort(-best_value[near], kind="stable")][:SHOWN]
    examples = tuple((int(left[best_index[i]]), int(right[i]), round(float(best_value[i]), 4)) for i in order)
    return Duplicates(exact=exact, near=len(near), examples=examples)


def thumbnails(dataset: ImageDataset, indices: Indices) -> Thumbnails:
    """Return each image as a grey thumbnail of mean 0 and length 1, float32 [n, side * side]; 0 where it is flat."""
    parts = [_thumbnail_block(dataset.images[indices[i : i + BLOCK]]) for i in range(0, len(indices), BLOCK)]
    return np.concatenate(parts)


def _thumbnail_block(images: NDArray[Any]) -> Thumbnails:
    grey = images.mean(axis=1, dtype=np.float32)
    rows, columns = (np.linspace(0, size, min(SIDE, size) + 1).astype(int)[:-1] for size in grey.shape[1:])
    small = np.add.reduceat(np.add.reduceat(grey, rows, axis=1), columns, axis=2).reshape(len(grey), -1)
    small -= small.mean(axis=1, keepdims=True)
    length = np.linalg.norm(small, axis=1, keepdims=True)
    thumbnail: Thumbnails = np.divide(small, length, out=np.zeros_like(small), where=length > 1e-3)
    return thumbnail


def _hash(dataset: ImageDataset, index: Any) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(dataset.images[index]).tobytes(), digest_size=16).digest()
