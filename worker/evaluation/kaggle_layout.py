"""A split's visible data in the form that Kaggle notebooks read: tables, images, a .pth file, a JSON of counts.

Made from what a sandbox may see anyway, once for each split and host; the .pth file is written here by torch.save.
"""

import csv
import json
import os
import secrets
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import torch
from PIL import Image

from lethe.data.files import read_json, read_tensors
from lethe.data.stored_sets import StoredSet
from lethe.errors import InvalidInput
from lethe.runtime.weights_layout import ORIGINAL_MODEL
from sandbox.policy import Mount

COLUMNS = ("image_id", "age_group", "age", "person_id")
SETS = ("retain", "forget", "validation")
PNG_COMPRESSION = 1  # images this small gain nothing from more
# What shell lines of notebooks call; `zip` and `python` are the sandbox's own.
PROGRAMS = (
    *("sh", "bash", "ls", "du", "df", "cat", "cp", "mv", "rm", "mkdir", "rmdir", "touch", "echo", "wc", "head", "tail"),
    *(
        "grep",
        "sed",
        "find",
        "sort",
        "uniq",
        "xargs",
        "date",
        "sleep",
        "free",
        "nproc",
        "env",
        "pwd",
        "tee",
        "tr",
        "test",
    ),
)


class NoNotebookLayout(InvalidInput):
    slug, title = "no-notebook-layout", "This split cannot be shown in the form that notebooks read"


def notebook_mounts(data_dir: Path, cache: Path, *, key: str, input_folder: str) -> tuple[Mount, ...]:
    """Return what to mount for a notebook on the data in `data_dir`, making the layout at the first call.

    key: names the content of data_dir, such as its manifest's hash. Raises NoNotebookLayout.
    """
    folder = cache / key / input_folder / data_dir.name
    if not folder.is_dir():
        _make(data_dir, folder, input_folder=input_folder)
    return (Mount(source=str(folder), target="/kaggle"), *program_mounts())


def program_mounts() -> tuple[Mount, ...]:
    """Return mounts of this host's shell and small programs, as far as it has them."""
    found = ((name, shutil.which(name, path="/bin:/usr/bin")) for name in PROGRAMS)
    mounts = [Mount(source=str(Path(path).resolve()), target=f"/bin/{name}") for name, path in found if path]
    return (
        *mounts,
        *(Mount(source=mount.source, target="/usr/bin/env") for mount in mounts if mount.target == "/bin/env"),
    )


def write_layout(data_dir: Path, into: Path) -> None:
    """Write the tables, images, weights and counts of the data in `data_dir` (a visible folder) below `into`."""
    network = read_json(data_dir / "network.json")
    channels = int(network["input_shape"][0])
    if channels not in (1, 3):
        raise NoNotebookLayout(f"images need 1 or 3 channels to be PNG files; these have {channels}")
    into.mkdir(parents=True, exist_ok=True)
    sets = {name: StoredSet.read(data_dir / f"{name}.safetensors") for name in SETS}
    for name, stored in sets.items():
        _write_table(into / f"{name}.csv", stored)
        _write_pictures(into / "images", stored)
    state = read_tensors(data_dir / ORIGINAL_MODEL)
    torch.save({name: tensor.clone() for name, tensor in state.items()}, into / "original_model.pth")
    counts = class_counts(sets, n_classes=int(network["n_classes"]))
    (into / "age_class_weights.json").write_text(json.dumps(counts), encoding="utf-8")
    (into / "network.json").write_text(json.dumps(network), encoding="utf-8")


def class_counts(sets: Mapping[str, StoredSet], *, n_classes: int) -> dict[str, int]:
    """Return how many training images each class has, by its number as a text."""
    counted = Counter(label for name in ("retain", "forget") for label in sets[name].labels.tolist())
    return {str(label): counted[label] for label in range(n_classes)}


def _make(data_dir: Path, folder: Path, *, input_folder: str) -> None:
    """Make the folder to mount, completely or not at all; the first of several processes wins."""
    part = folder.with_name(f".{folder.name}-{secrets.token_hex(6)}")
    try:
        write_layout(data_dir, part / "input" / input_folder)
        for name in ("tmp", "working"):
            (part / name).mkdir()
        _open_for_reading(part)
        try:
            part.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _write_table(path: Path, stored: StoredSet) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        ages = stored.labels if stored.ages is None else stored.ages
        columns = (stored.persons, stored.ids, stored.labels, ages)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        writer.writerows((f"{person}-{image}", label, age, person) for person, image, label, age in rows)


def _write_pictures(folder: Path, stored: StoredSet) -> None:
    pairs = zip(stored.persons.tolist(), stored.ids.tolist(), strict=True)
    for position, (person, image) in enumerate(pairs):
        path = folder / str(person) / f"{image}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = stored.images[position].permute(1, 2, 0).squeeze(-1).contiguous().numpy()
        Image.fromarray(pixels).save(path, compress_level=PNG_COMPRESSION)


def _open_for_reading(folder: Path) -> None:
    for base, _folders, names in os.walk(folder):
        Path(base).chmod(0o755)
        for name in names:
            Path(base, name).chmod(0o644)
