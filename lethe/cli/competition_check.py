"""One look at a competition file before it is sent: `lethe competition validate`, `create` and `update`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.cli.competition_data import lies_beside, not_looked_at, own_datasets, read_new_file
from lethe.cli.output import console

if TYPE_CHECKING:
    from lethe.competition.estimates import RecipeCost
    from lethe.competition.file import CompetitionFile


@dataclass(frozen=True)
class TaskCheck:
    """What was found of a competition, or of one of its tasks. set_sizes: none where the data was not looked at."""

    file: "CompetitionFile"
    recipes: "RecipeCost"
    set_sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()
    parameters: int = 0


@dataclass(frozen=True)
class FileCheck:
    """A checked file, with one entry for each task or for itself. warnings: what its organiser should know."""

    file: "CompetitionFile"
    tasks: tuple[TaskCheck, ...]
    warnings: tuple[str, ...]


def check_file(
    path: Path, *, data: Path | None = None, looks: bool = True, is_sent: bool = False, is_new: bool = True
) -> FileCheck:
    """Check a competition file as preparing does. Raises InvalidCompetitionFile, InvalidDataset or InvalidSplit.

    data: the files of an uploaded dataset. looks: whether at data and network. is_sent: look only at what lies beside
    the file or needs no files, for other folders are the workers' own, and only where training is installed. is_new:
    False for the file of a competition that exists, which may be over.
    """
    file = read_new_file(path, is_new=is_new)
    tasks, warnings = [], []
    if file.published_attacks:
        warnings.append(f"{file.scale_in_words} (docs/organisers/what-wins-without-unlearning.md)")
    for each in file.evaluated:
        found, said = _check_task(path, each, data=data, looks=looks and (not is_sent or _is_own(path, each)))
        tasks.append(found)
        warnings += [f"{each.title}: {warning}" if file.tasks else warning for warning in said]
    return FileCheck(file, tuple(tasks), tuple(warnings))


def print_warnings(check: FileCheck) -> None:
    for warning in check.warnings:
        console.print(f"warning: {warning}", style="yellow", markup=False, highlight=False, soft_wrap=True)


def _is_own(path: Path, file: "CompetitionFile") -> bool:
    """Return whether this machine can look at the data that is sent."""
    root = file.dataset.options.get("root")
    return find_spec("torch") is not None and (root is None or lies_beside(path, root) is not None)


def _check_task(
    path: Path, file: "CompetitionFile", *, data: Path | None, looks: bool
) -> tuple[TaskCheck, tuple[str, ...]]:
    from lethe.competition.estimates import recipe_cost
    from lethe.competition.run_limits import RetrainingCost, limit_warnings

    with own_datasets(path, file, data=data) as is_here:
        if not (looks and is_here):
            said = [not_looked_at(file)] if looks else []
            return TaskCheck(file, recipe_cost(file, retraining_s=0.0)), (
                *said,
                *limit_warnings(file.limits, RetrainingCost(), n_models=file.n_models),
            )
        from lethe.preparation.file_check import check_data

        check = check_data(file)
    seconds = check.retraining_s
    cost = RetrainingCost(seconds, cpu_s=check.fastest_s or None)
    limits = limit_warnings(file.limits, cost, n_models=file.n_models, estimated=True)
    sizes = {visibility.value: sizes for visibility, sizes in check.set_sizes.items()}
    found = TaskCheck(file, recipe_cost(file, retraining_s=seconds), sizes, check.class_names, check.parameters)
    return found, (*check.warnings, *limits)
