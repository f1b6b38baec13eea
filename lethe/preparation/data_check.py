"""Whether the data that a prepared split was made of is still what it was."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from lethe.competition.file import CompetitionFile
from lethe.competition.visibility import Visibility
from lethe.data.files import read_tensors
from lethe.data.stored_sets import SET_PATHS
from lethe.errors import AppError
from lethe.preparation.task_kinds import task_preparation

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
        for count, words in (
            (int((~kept_before).sum()), "are no longer in it"),
            (int((~kept_after).sum()), "are new"),
        )
        if count
    ]
    first, second = _by_id(before, kept_before), _by_id(after, kept_after)
    for name in sorted(set(first) & set(second) - {IDS}):
        if count := _rows_that_differ(first[name], second[name]):
            found.append(f"{name} of {count} of {len(before[IDS])} examples differ")
    return ", ".join(found)


def _by_id(tensors: Mapping[str, Tensor], kept: Tensor) -> dict[str, Tensor]:
    order = torch.argsort(tensors[IDS][kept])
    return {name: tensor[kept][order] for name, tensor in tensors.items() if len(tensor) == len(kept)}


def _rows_that_differ(first: Tensor, second: Tensor) -> int:
    if first.shape != second.shape:
        return len(first)
    return int((first != second).reshape(len(first), -1).any(dim=1).sum())
