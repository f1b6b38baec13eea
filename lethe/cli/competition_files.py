"""A competition file of the organiser's own machine: looked at before it is sent, and the images that lie beside it."""

import re
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.cli.output import notes
from lethe.client.api import LetheClient
from lethe.errors import InvalidInput
from lethe.text_files import is_visible, read_text

if TYPE_CHECKING:
    from lethe.competition.estimates import RecipeCost
    from lethe.competition.file import CompetitionFile


NOT_STORED = (".png", ".jpg", ".jpeg", ".webp", ".gif")  # compressed as they are


def read_new_file(path: Path, *, is_new: bool = True) -> "CompetitionFile":
    """Return the checked file of a competition that is to be made. Raises InvalidCompetitionFile.

    is_new: False for one that exists, which may be over.
    """
    from lethe.competition.file import read_competition_file
    from lethe.competition.new_file import require_new

    file = read_competition_file(path)
    require_new(file, at=datetime.now(UTC) if is_new else file.opens_at, source=str(path))
    return file


@contextmanager
def own_datasets(path: Path, file: "CompetitionFile", *, data: Path | None) -> Iterator[bool]:
    """Look datasets up beside the file, an uploaded one at `data`. Yield whether the file's is on this machine."""
    from lethe.competition.sections import uploaded_name
    from lethe.data.datasets.registry import datasets_below, datasets_beside

    name = uploaded_name(file.dataset.options)
    if name is None:
        with datasets_beside(path):
            yield True
    else:
        with datasets_below((), uploads={name: data.resolve()} if data else {}):
            yield data is not None


@dataclass(frozen=True)
class PlannedUpload:
    """A folder beside the file. name: how the server is asked to call it."""

    folder: Path
    name: str
    files: list[Path]


@dataclass(frozen=True)
class PlannedUploads:
    """A competition file's text, and the folders by the `root` that names each."""

    text: str
    folders: Mapping[str, PlannedUpload]

    def send(self, client: LetheClient) -> str:
        """Return the text, in which the folders are named as uploads once they are."""
        text = self.text
        for root, planned in self.folders.items():
            name = _upload(client, planned.folder, planned.files, name=planned.name)
            text = _root_in_file(root).sub(rf'\1"upload:{name}"', text)
        return text


def planned_uploads(path: Path, file: "CompetitionFile") -> PlannedUploads:
    """Return what is sent of a file. Nothing is read or sent yet.

    Raises InvalidInput where a folder cannot be uploaded, or its `root` cannot be found in the text.
    """
    text = read_text(path)
    found: dict[str, tuple[Path, str]] = {}
    for each in file.evaluated:
        root = each.dataset.options.get("root")
        folder = lies_beside(path, root)
        if folder is None or root in found:
            continue
        _require_uploadable(each, str(root))
        if not _root_in_file(str(root)).search(text):
            raise InvalidInput(
                f'{path}: {root} cannot be found in the text; write it as root = "{root}", or upload it with '
                "`lethe api POST /datasets` and name that"
            )
        found[str(root)] = folder, each.slug.replace("--", "-")[:64].strip("-")
    return PlannedUploads(
        text, {root: PlannedUpload(folder, name, _files(path, root, folder)) for root, (folder, name) in found.items()}
    )


def _root_in_file(root: str) -> re.Pattern[str]:
    return re.compile(rf"""(\broot\s*=\s*)(["']){re.escape(root)}\2""")


def lies_beside(path: Path, root: object) -> Path | None:
    """Return the folder that a `root` is on this machine, None if it is none: a worker's, an upload, or absolute."""
    if not isinstance(root, str) or root.startswith("upload:") or Path(root).is_absolute():
        return None
    folder = path.resolve().parent / root
    return folder if folder.is_dir() else None


def _files(path: Path, root: str, folder: Path) -> list[Path]:
    """Return what is sent of a folder: nothing hidden. Raises InvalidInput for one that may hold more than data."""
    real = folder.resolve()
    if real in path.resolve().parents:
        raise InvalidInput(
            f"{path}: the root {root!r} is the folder of this file, or one around it: put the images into a folder of "
            "their own. With --no-upload nothing is sent"
        )
    if any(part.startswith(".") and part not in {".", ".."} for part in Path(root).parts):
        raise InvalidInput(f"{path}: the root {root!r} is hidden, and is not sent; name another folder")
    inside = [each for each in sorted(folder.rglob("*")) if is_visible(each.relative_to(folder).as_posix())]
    for each in inside:
        if each.is_symlink() and not each.resolve().is_relative_to(real):
            raise InvalidInput(f"{each} is a link that leads out of {root}: put the file itself there, or take it away")
    return [each for each in inside if each.is_file()]


def _require_uploadable(file: "CompetitionFile", root: str) -> None:
    from lethe.competition.sections import UPLOADED_ADAPTERS

    if file.dataset.name not in UPLOADED_ADAPTERS:
        raise InvalidInput(
            f"{root} lies beside the file, and workers do not see it. A dataset {file.dataset.name!r} cannot be "
            f"uploaded (only {', '.join(UPLOADED_ADAPTERS)}): put the folder below LETHE_DATASET_ROOTS on every worker "
            "(~/.lethe/datasets if it names none), and say --no-upload"
        )


def _upload(client: LetheClient, folder: Path, files: list[Path], *, name: str) -> str:
    """Send a folder as a zip; return how the server calls it: by this name, or one with a number if that is taken."""
    taken = {one["name"] for one in client.get("/datasets")}
    numbered = (f"{name[:60]}-{n}" for n in count(2))
    name = next(each for each in chain((name,), numbered) if each not in taken)
    with tempfile.TemporaryDirectory() as made:
        archive = Path(made) / f"{name}.zip"
        with zipfile.ZipFile(archive, "w") as written:
            for path in files:
                packed = zipfile.ZIP_STORED if path.suffix.lower() in NOT_STORED else zipfile.ZIP_DEFLATED
                written.write(path, path.relative_to(folder), compress_type=packed)
        size_mib = archive.stat().st_size / 2**20
        notes.print(f"{folder.name}: {len(files)} files, {size_mib:.1f} MiB, are uploaded as {name}", highlight=False)
        client.upload_dataset(name, archive)
    return name


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
        root = each.dataset.options.get("root")
        is_own = find_spec("torch") is not None and (root is None or lies_beside(path, root) is not None)
        found, said = _check_task(path, each, data=data, looks=looks and (not is_sent or is_own))
        tasks.append(found)
        warnings += [f"{each.title}: {warning}" if file.tasks else warning for warning in said]
    return FileCheck(file, tuple(tasks), tuple(warnings))


def _check_task(
    path: Path, file: "CompetitionFile", *, data: Path | None, looks: bool
) -> tuple[TaskCheck, tuple[str, ...]]:
    from lethe.competition.estimates import recipe_cost
    from lethe.competition.run_limits import RetrainingCost, limit_warnings

    with own_datasets(path, file, data=data) as is_here:
        if not (looks and is_here):
            said = []
            if looks:
                unseen = f"{file.dataset.options['root']} is on the server: the data was not looked at."
                said = [f"{unseen} --data FOLDER names its files on this machine"]
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
