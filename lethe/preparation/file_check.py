"""Whether a split can be prepared from a competition file, and whether data is still what a split was made of."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lethe.competition.estimates import FASTEST_STEP_S, MAX_PARAMETERS, retraining_seconds
from lethe.competition.file import CompetitionFile
from lethe.competition.visibility import Visibility
from lethe.data.datasets.image_dataset import ImageDataset
from lethe.data.errors import InvalidSplit
from lethe.data.files import read_tensors
from lethe.data.stored_sets import SET_PATHS
from lethe.errors import AppError
from lethe.networks.builders import build, limit_parameters
from lethe.preparation.public_sample import sample_parts
from lethe.preparation.task_kinds import forward_operations, task_preparation

DIFFERS = (
    "the data is no longer what this split was made of ({what}). Scores are still by the stored data; "
    "lethe competition replace-split makes another version from the data as it is now"
)
IDS = "ids"


def data_difference(competition: CompetitionFile, visibility: Visibility, split_dir: Path) -> str:
    """Return how the data now differs from the sets of a prepared split, as a sentence; "" where it does not."""
    task = task_preparation(competition.task.kind)
    try:
        dataset = task.open_dataset(competition)
        cut = task.cut(dataset, competition, visibility)
    except AppError as error:
        return DIFFERS.format(what=error.detail)
    with TemporaryDirectory() as folder:
        task.write_data(Path(folder), competition, dataset, cut)
        found = {
            name: _difference(read_tensors(split_dir / path), read_tensors(Path(folder) / path))
            for name, path in SET_PATHS.items()
        }
    what = "; ".join(f"{name}: {difference}" for name, difference in found.items() if difference)
    return DIFFERS.format(what=what) if what else ""


def _difference(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> str:
    """Return what differs between two stored sets, by the ids of their examples."""
    kept_before, kept_after = torch.isin(before[IDS], after[IDS]), torch.isin(after[IDS], before[IDS])
    found = [
        f"{count} of {len(before[IDS])} examples {words}"
        for count, words in ((int((~kept_before).sum()), "are no longer in it"), (int((~kept_after).sum()), "are new"))
        if count
    ]
    first, second = _by_id(before, kept_before), _by_id(after, kept_after)
    for name in sorted(set(first) & set(second) - {IDS}):
        one, other = first[name], second[name]
        differ = (one != other).reshape(len(one), -1).any(dim=1) if one.shape == other.shape else one.new_ones(len(one))
        if count := int(differ.sum()):
            found.append(f"{name} of {count} of {len(before[IDS])} examples differ")
    return ", ".join(found)


def _by_id(tensors: Mapping[str, Tensor], kept: Tensor) -> dict[str, Tensor]:
    order = torch.argsort(tensors[IDS][kept])
    return {name: tensor[kept][order] for name, tensor in tensors.items() if len(tensor) == len(kept)}


SetSizes = dict[str, int]  # examples in retain, forget, validation and test
USUAL_PARAMETERS = 50_331_648  # that a worker without a GPU builds, unless its settings say otherwise


@dataclass(frozen=True)
class DataCheck:
    """What is known of a competition once its data was looked at.

    retraining_s: about how long one model trains on the retain set, from shapes alone; 0 for tasks of text.
    fastest_s: the same in the fastest code.
    parameters: of a network for images; 0 for others. warnings: sentences for its organiser.
    """

    set_sizes: dict[Visibility, SetSizes]
    class_names: tuple[str, ...] = ()
    retraining_s: float = 0.0
    fastest_s: float = 0.0
    parameters: int = 0
    warnings: tuple[str, ...] = ()


def check_preparation(competition: CompetitionFile) -> dict[Visibility, SetSizes]:
    """Return the size of every set. Raises as `check_data` does."""
    return check_data(competition).set_sizes


def check_data(competition: CompetitionFile) -> DataCheck:
    """Open the dataset, build the network, cut both splits.

    Raises InvalidDataset where the data cannot be read, else InvalidSplit with everything that is wrong.
    """
    task = task_preparation(competition.task.kind)
    dataset = task.open_dataset(competition)
    wrong: list[str] = []
    sizes: dict[Visibility, SetSizes] = {}
    network: dict[str, Any] = {}
    limit_parameters(MAX_PARAMETERS)
    try:
        network = task.describe_network(competition, dataset)
    except InvalidSplit as error:
        wrong.append(error.detail)
    finally:
        limit_parameters(None)
    for visibility in Visibility:
        try:
            cut = task.cut(dataset, competition, visibility)
            sample_parts(cut.validation, competition)
            sizes[visibility] = {name: len(indices) for name, indices in cut.sets()}
        except InvalidSplit as error:
            wrong.append(error.detail)
    if wrong:
        raise InvalidSplit("\n".join(dict.fromkeys(wrong)))
    if not isinstance(dataset, ImageDataset):
        return DataCheck(sizes)  # the number of tokens is known only when the data is cut
    with torch.random.fork_rng(devices=[]):
        parameters = sum(parameter.numel() for parameter in build(network).parameters())
    operations = forward_operations(network)
    n_retain = min(part["retain"] for part in sizes.values())
    return DataCheck(
        sizes,
        dataset.class_names,
        retraining_seconds(operations, competition.training, n_images=n_retain),
        retraining_seconds(operations, competition.training, n_images=n_retain, step_s=FASTEST_STEP_S),
        parameters,
        (*dataset.notes, *_notes_on_labels(dataset), *_notes_on_size(parameters)),
    )


def _notes_on_size(parameters: int) -> list[str]:
    if parameters <= USUAL_PARAMETERS:
        return []
    return [
        f"the network has {parameters:,} parameters; a worker without a GPU refuses more than {USUAL_PARAMETERS:,}, "
        "unless its LETHE_NETWORK_MEMORY_MIB is raised"
    ]


def _notes_on_labels(dataset: ImageDataset) -> list[str]:
    """Return what to say of examples that are equal, and of different classes."""
    first: dict[bytes, int] = {}
    pairs = []
    for place in range(len(dataset)):
        content = np.ascontiguousarray(dataset.images[place]).tobytes()
        same = first.setdefault(hashlib.blake2b(content, digest_size=16).digest(), place)
        if dataset.labels[same] != dataset.labels[place]:
            pairs.append((same, place))
    if not pairs:
        return []
    one, two = pairs[0]
    example = dataset.example if not dataset.is_table else "row"
    return [
        f"{len(pairs)} {example}s are equal to one of another class, first number {two} of class "
        f"{dataset.labels[two]} to number {one} of class {dataset.labels[one]}: which is right?"
    ]
